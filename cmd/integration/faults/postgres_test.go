package faults

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/pgstore"
)

func postgres(t *testing.T, settings map[string]string) *servers.Postgres {
	t.Helper()
	p, err := servers.NewPostgres(servers.PostgresOptions{Settings: settings})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func urlOf(addr string) string { return "postgres://postgres@" + addr + "/postgres?sslmode=disable" }

func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.Background(), url)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func openPostgres(t *testing.T, addr string) driver.Store {
	t.Helper()
	return openPG(t, urlOf(addr))
}

func openPG(t *testing.T, url string) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(context.Background(), pool(t, url), pgstore.Options{MaxConns: 4})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// inRecovery is what comes between a primary that died and one that takes its place.
var inRecovery = strike{
	"server in recovery",
	[]moment{atClaim, atSettle},
	false,
	func(t *testing.T, f *fleet) {
		must(t, f.server.Stop())
		must(t, f.server.(*servers.Postgres).StartInRecovery())
	},
	func(t *testing.T, f *fleet, _ func()) {
		time.Sleep(short)
		must(t, f.server.Stop())
		must(t, f.server.Start())
	},
}

func TestR46_R48_Case02_Case06_Case07_Case43_PostgresSurvives(t *testing.T) {
	t.Parallel()
	p := postgres(t, map[string]string{"max_connections": "20"})
	f := newFleet(t, seat{server: p, addr: p.Addr(), open: openPostgres}, newLedger())
	f.exhaust = hog(p)
	surviveAll(t, f, slices.Concat(strikes, []strike{inRecovery}))
}

// hog takes the connections of a server, also from those that have them.
func hog(p *servers.Postgres) func(*testing.T) (release func()) {
	return func(t *testing.T) func() {
		t.Helper()
		ctx := context.Background()
		var taken []*pgx.Conn
		for range 3 { // who was thrown out may be back before all are taken
			for {
				c, err := pgx.Connect(ctx, p.URL()+"&application_name=hog")
				if err != nil {
					break
				}
				taken = append(taken, c)
			}
			if _, err := taken[0].Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
				where backend_type = 'client backend' and application_name <> 'hog'`); err != nil {
				t.Error(err)
			}
		}
		return func() {
			for _, c := range taken {
				c.Close(ctx) //nolint:errcheck // nothing depends on how
			}
		}
	}
}
