package shop

// Upsert by the client's id. A charge is a resource that its client names: PUT under the same name twice means the same
// charge. There is no key, and no record of an operation: the row is the record, for as long as it lives. It is
// inserted unless the tenant has one of that name, in one statement, so that of two requests at once one inserts and
// the other finds.
//
// This is enough where the whole effect is one row, and where a client has a name that it will find again. A key is
// better where the answer depends on more than the row, or where the same wish may be meant twice.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/semelhq/semel/examples/shop/database"
)

// NewCharge is what is to be charged to an account.
type NewCharge struct {
	Account     string `json:"account" minLength:"1" maxLength:"64" pattern:"^[^\\x00]*$" example:"acc-1"`
	Amount      int64  `json:"amount" minimum:"1" maximum:"100000000000" doc:"In minor units of the currency" example:"1290"`
	Currency    string `json:"currency" pattern:"^[A-Z]{3}$" doc:"ISO 4217" example:"EUR"`
	Description string `json:"description,omitempty" maxLength:"200" pattern:"^[^\\x00]*$" example:"Delivery"`
}

// Charge is what was charged.
type Charge struct {
	ID       string `json:"id" format:"uuid"`
	ClientID string `json:"client_request_id" doc:"The name that the client has given" example:"delivery-17"`
	NewCharge
	Created time.Time `json:"created"`
}

type foundCharge struct {
	Status int
	Body   Charge
}

func (s *Shop) charges() {
	register(s, call{
		id: "put-charge", method: http.MethodPut, path: "/charges/{clientRequestId}", tag: "charges", summary: "Charge something to an account, once for each name",
		refusals: []int{http.StatusCreated, http.StatusConflict},
	}, s.putCharge)
	register(s, call{
		id: "get-charge", method: http.MethodGet, path: "/charges/{clientRequestId}", tag: "charges", summary: "Look at a charge",
		refusals: []int{http.StatusNotFound},
	}, s.getCharge)
}

func (s *Shop) putCharge(ctx context.Context, in *struct {
	ClientID string `path:"clientRequestId" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._~-]+$" doc:"The client's name for the charge: a new one for each charge, the same in each attempt" example:"delivery-17"`
	Body     NewCharge
},
) (*foundCharge, error) {
	c := Charge{ID: uuid.Must(uuid.NewV7()).String(), ClientID: in.ClientID, NewCharge: in.Body, Created: now()}
	n, err := s.db.Exec(ctx, "INSERT INTO charges (tenant, client_id, id, asked, created) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant, client_id) DO NOTHING",
		principal(ctx).Tenant, c.ClientID, c.ID, encode(c.NewCharge), c.Created.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("insert the charge: %w", err)
	}
	if n > 0 {
		return &foundCharge{http.StatusCreated, c}, nil
	}
	there, err := findCharge(ctx, s.db, in.ClientID)
	if err != nil {
		return nil, err
	}
	if there.NewCharge != in.Body {
		return nil, refuse(http.StatusConflict, "charge_exists", "there is another charge "+in.ClientID)
	}
	return &foundCharge{http.StatusOK, *there}, nil
}

func (s *Shop) getCharge(ctx context.Context, in *struct {
	ClientID string `path:"clientRequestId" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._~-]+$" doc:"The client's name for the charge" example:"delivery-17"`
},
) (*foundCharge, error) {
	c, err := findCharge(ctx, s.db, in.ClientID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, refuse(http.StatusNotFound, "charge_not_found", "there is no charge "+in.ClientID)
	}
	if err != nil {
		return nil, err
	}
	return &foundCharge{http.StatusOK, *c}, nil
}

func findCharge(ctx context.Context, q database.Queries, clientID string) (*Charge, error) {
	var (
		c       = Charge{ClientID: clientID}
		asked   string
		created int64
	)
	err := q.QueryRow(ctx, "SELECT id, asked, created FROM charges WHERE tenant = $1 AND client_id = $2", principal(ctx).Tenant, clientID).
		Scan(&c.ID, &asked, &created)
	if err == nil {
		err = json.Unmarshal([]byte(asked), &c.NewCharge)
	}
	if err != nil {
		return nil, fmt.Errorf("find the charge: %w", err)
	}
	c.Created = time.UnixMilli(created).UTC()
	return &c, nil
}
