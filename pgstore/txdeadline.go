package pgstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/internal/lazyctx"
)

// sent is a batch that is under way.
type sent struct {
	*pgconn.MultiResultReader
	t     *transaction
	timed bool
}

// send sends a batch. Where only time can end ctx, its deadline becomes the connection's, which costs less than to
// watch the context, and has the same effect.
func (t *transaction) send(ctx context.Context, b *pgconn.Batch) sent {
	if c, ok := ctx.(*lazyctx.Context); ok && c.Timed() && time.Until(c.At) > 0 && t.pg().Conn().SetDeadline(c.At) == nil {
		return sent{t.pg().ExecBatch(context.Background(), b), t, true}
	}
	return sent{t.pg().ExecBatch(ctx, b), t, false}
}

// Close reads what is left, and returns the error of the batch.
func (s sent) Close() error {
	err := s.MultiResultReader.Close()
	if !s.timed {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	if reset := s.t.pg().Conn().SetDeadline(time.Time{}); reset != nil {
		s.t.spoiled = true
	}
	return err
}
