package tieredtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/semelhq/semel/internal/servers"
)

// The servers that tests share, started when they are first asked for. Storages are apart by schema, file and prefix.
var (
	postgres = servers.Shared[*servers.Postgres]{Start: func() (*servers.Postgres, error) {
		return servers.NewPostgres(servers.PostgresOptions{Settings: map[string]string{"max_connections": "400"}})
	}}
	redis = servers.Shared[*servers.Redis]{Start: func() (*servers.Redis, error) { return servers.NewRedis() }}
)

func TestMain(m *testing.M) {
	code := m.Run()
	if client.Client != nil {
		client.Close()
	}
	if pool.Pool != nil {
		pool.Close()
	}
	for _, err := range []error{postgres.Close(), redis.Close()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// ownRedis starts a server that the test may hurt.
func ownRedis(t testing.TB) *servers.Redis {
	t.Helper()
	r, err := servers.NewRedis()
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
