package linear

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/servers"
)

// The servers that tests share, started when they are first asked for. Storages are apart by schema and prefix.
var (
	postgres = shared[*servers.Postgres]{start: func() (*servers.Postgres, error) {
		return servers.NewPostgres(servers.PostgresOptions{})
	}}
	redis = shared[*servers.Redis]{start: func() (*servers.Redis, error) { return servers.NewRedis() }}
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range []error{postgres.close(), redis.close()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

type shared[S servers.Server] struct {
	start func() (S, error)

	once   sync.Once
	server S
	err    error
	up     bool
}

func (s *shared[S]) get(t testing.TB) S {
	t.Helper()
	s.once.Do(func() {
		s.server, s.err = s.start()
		s.up = s.err == nil
	})
	must(t, s.err)
	return s.server
}

func (s *shared[S]) close() error {
	if !s.up {
		return nil
	}
	return s.server.Close()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
