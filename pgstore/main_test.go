package pgstore

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/servers"
)

// The servers that the tests share. They separate their storages by schema.
var (
	server  *servers.Postgres
	bouncer *servers.PgBouncer
)

func TestMain(m *testing.M) {
	code, err := withServers(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withServers(run func() int) (code int, err error) {
	if server, err = servers.NewPostgres(servers.PostgresOptions{}); err != nil {
		return 1, err
	}
	defer server.Close()
	if bouncer, err = servers.NewPgBouncer(server, servers.PgBouncerOptions{}); err != nil {
		return 1, err
	}
	defer bouncer.Close()
	return run(), nil
}

// ownServer starts a server that one test may hurt.
func ownServer(t *testing.T, o servers.PostgresOptions) *servers.Postgres {
	t.Helper()
	p, err := servers.NewPostgres(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return p
}

var schemas struct {
	sync.Mutex
	n int
}

// newSchema returns the name of a schema that no other test uses.
func newSchema() string {
	schemas.Lock()
	defer schemas.Unlock()
	schemas.n++
	return fmt.Sprintf("test_%d", schemas.n)
}
