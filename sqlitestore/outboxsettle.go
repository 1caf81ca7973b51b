package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

const (
	readMessage    = "SELECT seq, topic, tenant, key, state, open, head, since, due, token FROM semel_outbox WHERE id = ?"
	deleteMessage  = "DELETE FROM semel_outbox WHERE seq = ?"
	keepSent       = "UPDATE semel_outbox SET state = 3, open = 0, head = 0, error = '', token = NULL, ended = ?, expires = ? WHERE seq = ?"
	messageFailed  = "UPDATE semel_outbox SET attempts = attempts + 1, error = ?, token = NULL, due = ? WHERE seq = ?"
	messageDied    = "UPDATE semel_outbox SET state = 2, open = ?, attempts = attempts + 1, error = ?, token = NULL, ended = ? WHERE seq = ?"
	putMessageBack = "UPDATE semel_outbox SET token = NULL, due = since WHERE seq = ?"
	requeueMessage = "UPDATE semel_outbox SET attempts = CASE state WHEN 2 THEN 0 ELSE attempts END, state = 1, open = 1, token = NULL, due = 0, ended = NULL WHERE seq = ?"
	deleteSent     = "DELETE FROM semel_outbox WHERE seq IN (SELECT seq FROM semel_outbox WHERE state = 3 AND expires <= ? ORDER BY expires LIMIT ?)"
)

// A keyOf names the messages of which one waits for the other.
type keyOf struct {
	outbox.Lane
	key string
}

// A held message is what a change looks at.
type held struct {
	keyOf
	seq        int64
	state      outbox.State
	open, head bool
	since, due driver.Time
	token      []byte
}

// hold reads a message; found is false if it is not there.
func (u *unit) hold(id string) (m held, found bool, err error) {
	err = u.conn.QueryRowContext(detached, readMessage, id).Scan(&m.seq, &m.Topic, &m.Tenant, &m.key, &m.state, &m.open, &m.head, &m.since, &m.due, &m.token)
	if errors.Is(err, sql.ErrNoRows) {
		return m, false, nil
	}
	return m, err == nil, interpretError(err)
}

func (u *unit) changeMessage(query string, args ...any) error {
	_, err := u.conn.ExecContext(detached, query, args...)
	u.wrote = u.wrote || err == nil
	return interpretError(err)
}

// promote makes the oldest open message of each key one that waits for no other.
func (u *unit) promote(keys map[keyOf]bool) error {
	for k := range keys {
		first, err := u.first(k)
		if err == nil && first != 0 {
			_, err = u.run(makeHead, 1, first, 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// first returns the oldest open message of a key; 0 if there is none.
func (u *unit) first(k keyOf) (int64, error) {
	st, err := u.stmt(firstOfKey)
	if err != nil {
		return 0, err
	}
	var seq sql.NullInt64
	err = st.QueryRowContext(detached, k.Topic, k.Tenant, k.key).Scan(&seq)
	return seq.Int64, interpretError(err)
}

// whole has do executed as a whole: with an error nothing of it is left.
func (u *unit) whole(do func() error) error {
	if err := u.exec("SAVEPOINT semel_outbox"); err != nil {
		return err
	}
	err := do()
	if err != nil {
		if undone := u.exec("ROLLBACK TO semel_outbox"); undone != nil {
			return errors.Join(err, undone)
		}
	}
	return errors.Join(err, u.exec("RELEASE semel_outbox"))
}

// Settle implements [outbox.Store].
func (b *Outbox) Settle(ctx context.Context, t driver.Token, results []outbox.Result) error {
	_, _, err := decide(ctx, b.store, &call{size: 1024 * len(results)}, func(u *unit) (struct{}, bool, error) {
		return struct{}{}, false, u.whole(func() error {
			freed := map[keyOf]bool{}
			for _, r := range results {
				if err := b.settle(u, t, r, freed); err != nil {
					return err
				}
			}
			return u.promote(freed)
		})
	})
	if err != nil {
		return fmt.Errorf("sqlitestore: settle messages: %w", err)
	}
	return nil
}

func (b *Outbox) settle(u *unit, t driver.Token, r outbox.Result, freed map[keyOf]bool) error {
	m, found, err := u.hold(r.ID)
	if err != nil || !found || m.state != outbox.Pending || !bytes.Equal(m.token, t[:]) {
		return err
	}
	switch r.Outcome {
	case outbox.Acknowledged:
		if b.o.Keep == 0 {
			err = u.changeMessage(deleteMessage, m.seq)
		} else {
			err = u.changeMessage(keepSent, int64(u.now), int64(u.now.Add(b.o.Keep)), m.seq)
		}
	case outbox.Failed:
		return u.changeMessage(messageFailed, r.Error, int64(u.now.Add(r.Delay)), m.seq)
	case outbox.GivenUp:
		hold := r.Hold && m.key != ""
		err = u.changeMessage(messageDied, hold, r.Error, int64(u.now), m.seq)
	case outbox.PutBack:
		return u.changeMessage(putMessageBack, m.seq)
	default:
		return fmt.Errorf("message %s has no outcome: %d", r.ID, r.Outcome)
	}
	if m.key != "" {
		freed[m.keyOf] = true
	}
	return err
}

// Requeue implements [outbox.Store].
func (b *Outbox) Requeue(ctx context.Context, ids ...string) (int, error) {
	n, err := b.each(ctx, ids, func(u *unit, m *held, freed map[keyOf]bool) (bool, error) {
		if m.state == outbox.Sent {
			return false, nil
		}
		if m.key != "" && !m.open { // it is again the one that younger ones wait for
			first, err := u.first(m.keyOf)
			if err == nil && first > m.seq {
				_, err = u.run(makeHead, 0, first, 0)
			}
			if err == nil && first != 0 && first < m.seq {
				_, err = u.run(makeHead, 0, m.seq, 0)
			}
			if err != nil {
				return false, err
			}
			freed[m.keyOf] = true
		}
		return true, u.changeMessage(requeueMessage, m.seq)
	})
	if err != nil {
		return 0, fmt.Errorf("sqlitestore: requeue messages: %w", err)
	}
	return n, nil
}

// Drop implements [outbox.Store].
func (b *Outbox) Drop(ctx context.Context, ids ...string) (int, error) {
	n, err := b.each(ctx, ids, func(u *unit, m *held, freed map[keyOf]bool) (bool, error) {
		if m.key != "" {
			freed[m.keyOf] = true
		}
		return true, u.changeMessage(deleteMessage, m.seq)
	})
	if err != nil {
		return 0, fmt.Errorf("sqlitestore: drop messages: %w", err)
	}
	return n, nil
}

// each calls change for the messages that are not leased, and counts those that it has changed.
func (b *Outbox) each(ctx context.Context, ids []string, change func(u *unit, m *held, freed map[keyOf]bool) (bool, error)) (int, error) {
	n, _, err := decide(ctx, b.store, &call{size: 1024 * len(ids)}, func(u *unit) (n int, _ bool, err error) {
		err = u.whole(func() error {
			freed := map[keyOf]bool{}
			for _, id := range ids {
				m, found, err := u.hold(id)
				if err != nil {
					return err
				}
				if !found || m.state == outbox.Pending && m.token != nil && m.due > u.now {
					continue
				}
				changed, err := change(u, &m, freed)
				if err != nil {
					return err
				}
				if changed {
					n++
				}
			}
			return u.promote(freed)
		})
		return n, false, err
	})
	b.store.messages.Ring()
	return n, err
}

// Clean implements [outbox.Store].
func (b *Outbox) Clean(ctx context.Context, limit int) (int, error) {
	n, _, err := decide(ctx, b.store, &call{size: 1024}, func(u *unit) (int, bool, error) {
		r, err := u.conn.ExecContext(detached, deleteSent, int64(u.now), limit)
		if err != nil {
			return 0, false, interpretError(err)
		}
		n, err := r.RowsAffected()
		u.wrote = u.wrote || n > 0
		return int(n), false, interpretError(err)
	})
	if err != nil {
		return 0, fmt.Errorf("sqlitestore: clean the outbox: %w", err)
	}
	return n, nil
}
