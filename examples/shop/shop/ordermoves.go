package shop

// A state machine. Which moves there are from a state is the business's: an illegal one is refused, and the refusal is
// kept under the client's key, as any other answer. The order is locked while it moves, so that it moves once, and its
// stock is given back once. Each move is written down beside the operation that made it: a request that comes after its
// operation was forgotten finds its move done, and is not told that it is illegal.

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/semelhq/semel"
)

// A move of an order from one of some states to another.
type move struct {
	name string
	from []string
	to   string
	free bool // gives the stock back
}

func (s *Shop) orderMoves() {
	for _, m := range []move{
		{name: "confirm", from: []string{"pending"}, to: "confirmed"},
		{name: "cancel", from: []string{"pending", "confirmed"}, to: "cancelled", free: true},
	} {
		register(s, call{
			id: m.name + "-order", method: http.MethodPost, path: "/orders/{id}/" + m.name, tag: "orders", summary: strings.ToTitle(m.name[:1]) + m.name[1:] + " an order",
			once: inOneCommit, refusals: []int{http.StatusNotFound, http.StatusConflict},
		}, func(ctx context.Context, in *struct {
			ID uuid.UUID `path:"id" format:"uuid"`
		},
		) (*foundOrder, error) {
			return s.moveOrder(ctx, in.ID, m)
		})
	}
}

func (s *Shop) moveOrder(ctx context.Context, id uuid.UUID, m move) (*foundOrder, error) {
	tx := txOf(ctx)
	o, err := s.lockedOrder(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	n, err := tx.Exec(ctx, "INSERT INTO order_moves (tenant, order_id, row_key, move, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (row_key) DO NOTHING",
		principal(ctx).Tenant, o.ID, semel.FromContext(ctx).Key("row"), m.name, now().UnixMilli())
	switch {
	case err != nil:
		return nil, fmt.Errorf("write the move down: %w", err)
	case n == 0:
		return found(o), nil
	case !slices.Contains(m.from, o.State):
		return nil, refuse(http.StatusConflict, "illegal_move", fmt.Sprintf("the order is %s: there is no way to %s it", o.State, m.name))
	}
	if m.free {
		if _, _, err := moveStock(ctx, tx, o.Lines, nil); err != nil {
			return nil, err
		}
	}
	o.State = m.to
	o.version++
	s.crash("orders." + m.name + ".moved")
	return found(o), storeOrder(ctx, tx, o)
}
