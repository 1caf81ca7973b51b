package shop

// A ledger. What an account has is the sum of its entries, and an entry is never changed: who was given a point too
// many is given one less by another entry. Increments are where a repeat hurts most, as nothing in "one more" tells
// that it was there before; so each entry carries the request that made it, and an account has one entry of each. The
// balance is kept beside the ledger, changed in the same transaction, and checked against the sum whenever somebody
// looks.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
)

// maxPoints is the most that an account can have: every client can tell it from its neighbours, also one whose numbers
// are floats.
const maxPoints = 1<<53 - 1

// NewEntry is what an account is given, or what is taken from it.
type NewEntry struct {
	Amount int64  `json:"amount" minimum:"-1000000000" maximum:"1000000000" doc:"Negative to spend points; not 0" example:"50"`
	Reason string `json:"reason,omitempty" maxLength:"200" pattern:"^[^\\x00]*$" example:"Welcome"`
}

// Entry is an entry of an account's ledger.
type Entry struct {
	Number int64 `json:"number" doc:"Counts the entries of the account, from 1" example:"1"`
	NewEntry
	Balance int64     `json:"balance" doc:"After the entry" example:"50"`
	Created time.Time `json:"created"`
}

type entryAnswer struct{ Body Entry }

type pointsPage struct {
	Link string `header:"Link" doc:"rel=\"next\" is the next page"`
	Body struct {
		Balance int64   `json:"balance" doc:"The sum of all entries" example:"50"`
		Count   int64   `json:"count" doc:"How many entries there are" example:"1"`
		Entries []Entry `json:"entries" doc:"The newest first"`
		Next    string  `json:"next,omitempty" doc:"The cursor of the next page; missing on the last one"`
	}
}

func (s *Shop) points() {
	register(s, call{
		id: "add-points", method: http.MethodPost, path: "/accounts/{id}/points", tag: "points", summary: "Give points to an account, or spend them",
		status: http.StatusCreated, once: inOneCommit, refusals: []int{http.StatusConflict},
	}, s.addPoints)
	register(s, call{
		id: "list-points", method: http.MethodGet, path: "/accounts/{id}/points", tag: "points", summary: "Look at an account's points, and where they come from",
	}, s.listPoints)
}

func (s *Shop) addPoints(ctx context.Context, in *struct {
	Account string `path:"id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._~-]+$" example:"acc-1"`
	Body    NewEntry
},
) (*entryAnswer, error) {
	op, tx, tenant := semel.FromContext(ctx), txOf(ctx), principal(ctx).Tenant
	if in.Body.Amount == 0 {
		return nil, invalid("body.amount", "0 changes nothing")
	}
	// The operation may have been forgotten, and its entry be there.
	earlier, err := scanEntry(tx.QueryRow(ctx, "SELECT "+entryColumns+" FROM point_entries WHERE tenant = $1 AND account = $2 AND request_id = $3", tenant, in.Account, op.Key("row")))
	switch {
	case err == nil && earlier.NewEntry != in.Body:
		return nil, reused()
	case err == nil:
		return &entryAnswer{*earlier}, nil
	case !errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("find the entry: %w", err)
	}
	e := Entry{NewEntry: in.Body, Created: now()}
	if e.Balance, e.Number, err = changeBalance(ctx, tx, in.Account, e.Amount); err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO point_entries (tenant, account, number, request_id, amount, balance, reason, created) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
		tenant, in.Account, e.Number, op.Key("row"), e.Amount, e.Balance, e.Reason, e.Created.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("insert the entry: %w", err)
	}
	s.crash("points.add.inserted")
	return &entryAnswer{e}, nil
}

// changeBalance changes a balance unless it would be negative, and returns it and the number of its new entry. It has
// others that change the account wait for the transaction, so that entries are numbered without a gap.
func changeBalance(ctx context.Context, tx database.Tx, account string, amount int64) (balance, number int64, err error) {
	tenant := principal(ctx).Tenant
	if _, err = tx.Exec(ctx, "INSERT INTO point_balances (tenant, account, balance, entries) VALUES ($1, $2, 0, 0) ON CONFLICT (tenant, account) DO NOTHING", tenant, account); err != nil {
		return 0, 0, fmt.Errorf("open the account: %w", err)
	}
	err = tx.QueryRow(ctx, `UPDATE point_balances SET balance = balance + $1, entries = entries + 1
		WHERE tenant = $2 AND account = $3 AND balance + $1 BETWEEN 0 AND $4 RETURNING balance, entries`, amount, tenant, account, int64(maxPoints)).Scan(&balance, &number)
	if errors.Is(err, sql.ErrNoRows) {
		semel.FromContext(ctx).Release() // nothing has happened, and the account may have more later
		p := refuse(http.StatusConflict, "points_out_of_range", fmt.Sprintf("an account has from 0 to %d points: %d can't be added", int64(maxPoints), amount))
		p.Retryable = true
		return 0, 0, p
	}
	if err != nil {
		return 0, 0, fmt.Errorf("change the balance: %w", err)
	}
	return balance, number, nil
}

func (s *Shop) listPoints(ctx context.Context, in *struct {
	Account string `path:"id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._~-]+$" example:"acc-1"`
	Page
},
) (*pointsPage, error) {
	before := int64(maxPoints)
	if err := in.read(&before); err != nil {
		return nil, err
	}
	out, sum := &pointsPage{}, int64(0)
	tenant := principal(ctx).Tenant
	// In one statement, so that all is of one moment.
	err := s.db.QueryRow(ctx, `SELECT COALESCE(MAX(b.balance), 0), COALESCE(MAX(b.entries), 0),
		(SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM point_entries WHERE tenant = $1 AND account = $2)
		FROM point_balances b WHERE b.tenant = $1 AND b.account = $2`, tenant, in.Account).Scan(&out.Body.Balance, &out.Body.Count, &sum)
	if err == nil && sum != out.Body.Balance {
		err = fmt.Errorf("the balance of account %s of %s is %d, and the sum of its entries %d", in.Account, tenant, out.Body.Balance, sum)
	}
	if err != nil {
		return nil, fmt.Errorf("look at the account: %w", err)
	}
	out.Body.Entries, err = scanAll(scanEntry)(s.db.Query(ctx, "SELECT "+entryColumns+" FROM point_entries WHERE tenant = $1 AND account = $2 AND number < $3 ORDER BY number DESC LIMIT $4",
		tenant, in.Account, before, in.Limit+1))
	if err != nil {
		return nil, fmt.Errorf("list the entries: %w", err)
	}
	if len(out.Body.Entries) > in.Limit {
		out.Body.Entries = out.Body.Entries[:in.Limit]
		out.Body.Next, out.Link = in.next("/accounts/"+in.Account+"/points", out.Body.Entries[in.Limit-1].Number)
	}
	return out, nil
}

const entryColumns = "number, amount, balance, reason, created"

func scanEntry(row scanner) (*Entry, error) {
	var (
		e       Entry
		created int64
	)
	err := row.Scan(&e.Number, &e.Amount, &e.Balance, &e.Reason, &created)
	e.Created = time.UnixMilli(created).UTC()
	return &e, err
}
