package linear

import (
	"fmt"
	"os"
	"testing"

	"github.com/semelhq/semel/internal/servers"
)

// The servers that tests share, started when they are first asked for. Storages are apart by schema and prefix.
var (
	postgres = servers.Shared[*servers.Postgres]{Start: func() (*servers.Postgres, error) {
		return servers.NewPostgres(servers.PostgresOptions{})
	}}
	redis = servers.Shared[*servers.Redis]{Start: func() (*servers.Redis, error) { return servers.NewRedis() }}
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range []error{postgres.Close(), redis.Close()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
