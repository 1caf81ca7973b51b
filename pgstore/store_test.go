package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
)

// The store's own pool connects as the application does, and does nothing else that the application does with its
// connections.
func TestTheStoresOwnPool(t *testing.T) {
	t.Parallel()
	unwanted := errors.New("the application's hook was called")
	app := newPool(t, server.URL()+"&application_name=payments&statement_timeout=1&default_transaction_read_only=on", func(c *pgxpool.Config) {
		c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return false, unwanted }
		c.AfterRelease = func(*pgx.Conn) bool { return false }
	})
	s := openOn(t, app, Options{MaxConns: 3})
	rec := claim(t, s, newID(), ask(driver.Hold))
	if rec.State != driver.Running {
		t.Errorf("the record is %v", rec.State)
	}
	if name := value[string](t, s, "SHOW application_name"); name != "payments" {
		t.Errorf("it connects as %q", name)
	}
	if n := s.pool.Config().MaxConns; n != 3 {
		t.Errorf("it has %d connections at most", n)
	}
	if n := openStore(t, Options{}).pool.Config().MaxConns; n < 4 {
		t.Errorf("by default it has %d connections at most", n)
	}
	if _, err := Open(context.Background(), app, Options{MaxConns: -1}); err == nil {
		t.Error("a negative number of connections is accepted")
	}
}

func TestTimeoutsHaveDefaults(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ given, want time.Duration }{
		{0, time.Minute}, {-1, 0}, {time.Second, time.Second}, {time.Nanosecond, time.Millisecond},
	} {
		if got := timeout(row.given); got != row.want {
			t.Errorf("%v is %v, want %v", row.given, got, row.want)
		}
	}
}

// The application's connections may all be taken by handlers.
func TestVerbsNeverQueueBehindHandlers(t *testing.T) {
	t.Parallel()
	app := newPool(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := openOn(t, app, Options{})
	begin(t, s, pgx.TxOptions{})
	claim(t, s, newID(), ask(driver.Hold))
}
