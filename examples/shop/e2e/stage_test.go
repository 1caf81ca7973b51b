package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/internal/child"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/refusal"
)

// Servers that all tests share. Each stage has a database, a key space and streams of its own.
var (
	postgresServer = servers.Shared[*servers.Postgres]{Start: func() (*servers.Postgres, error) { return servers.NewPostgres(servers.PostgresOptions{}) }}
	redisServer    = servers.Shared[*servers.Redis]{Start: func() (*servers.Redis, error) { return servers.NewRedis() }}
)

func TestMain(m *testing.M) {
	if text := os.Getenv(processVariable); text != "" {
		fmt.Fprintln(os.Stderr, serveProcess(text))
		os.Exit(1)
	}
	code := m.Run()
	err := errors.Join(postgresServer.Close(), redisServer.Close(), child.Remove())
	if npmFolder != "" {
		err = errors.Join(err, os.RemoveAll(npmFolder))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// onBoth runs a test on SQLite, and on PostgreSQL, Redis and NATS, with two instances each; in the short form on one of
// the two, by chance.
func onBoth(t *testing.T, test func(t *testing.T, s *stage)) {
	onEach(t, func(t *testing.T, c host.Config) { test(t, newStage(t, c)) })
}

// onEach is onBoth for a test that changes the configuration before it opens its stage.
func onEach(t *testing.T, test func(t *testing.T, c host.Config)) {
	for _, kind := range proof.Some(1, "SQLite", "PostgreSQL") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := host.Config{Instances: 2}
			if kind == "PostgreSQL" {
				c.Database, c.Cache, c.NATS = newDatabase(t), "redis://"+redisServer.Get(t).Addr(), newNATS(t)
			}
			test(t, c)
		})
	}
}

// A stage is a shop that serves, until its test ends.
type stage struct {
	config host.Config
	t      *testing.T
	urls   []string
	host   *host.Host
	data   string
	keys   atomic.Int64

	mu       sync.Mutex
	contract *contract
}

func newStage(t *testing.T, c host.Config) *stage {
	t.Helper()
	c.Data, c.Listen, c.Log = t.TempDir(), "localhost:0", slog.New(slog.DiscardHandler)
	h, err := host.Open(t.Context(), c)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, h.Close()); err != nil {
			t.Error(err)
		}
	})
	text, err := h.Shops[0].OpenAPI()
	must(t, err)
	described, err := newContract(text)
	must(t, err)
	return &stage{t: t, config: c, urls: h.URLs, host: h, data: c.Data, contract: described}
}

// newKey returns a key that no request has had.
func (s *stage) newKey() string { return fmt.Sprintf("key-%d", s.keys.Add(1)) }

// A reply is what the shop has answered.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
}

func (r *reply) String() string { return fmt.Sprintf("%d %s", r.Status, bytes.TrimSpace(r.Body)) }

// decode reads a JSON body.
func decode[T any](t *testing.T, r *reply) (v T) {
	t.Helper()
	if err := json.Unmarshal(r.Body, &v); err != nil {
		t.Fatalf("%v in %s", err, r)
	}
	return v
}

// call sends a request to an instance, as alice of acme unless the header says otherwise. A body that is no string is
// sent as JSON.
func (s *stage) call(instance int, method, path, key string, body any, header http.Header) *reply {
	s.t.Helper()
	for tries := 1; ; tries++ {
		r, err := s.try(instance, method, path, key, body, header)
		must(s.t, err)
		// A busy machine may have refused the claim; then nothing was run.
		if tries == 5 || refusal.Code(r.Header.Get("Idempotency-Code")) != refusal.StoreUnavailable {
			return r
		}
	}
}

func (s *stage) try(instance int, method, path, key string, body any, header http.Header) (*reply, error) {
	text, ok := body.(string)
	if !ok && body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = string(encoded)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, s.urls[instance%len(s.urls)]+"/api/v1"+path, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	if text != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header["idempotency-key"] = []string{`"` + key + `"`} // net/http resends a request if it finds the header
	}
	r.Header.Set("Authorization", s.bearer("acme", "alice"))
	maps.Copy(r.Header, header)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	got := &reply{Status: res.StatusCode, Header: res.Header}
	if got.Body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	s.mu.Lock() // a compiler of schemas is not for concurrent use
	defer s.mu.Unlock()
	if err := s.contract.broken(r, got); err != nil {
		s.t.Errorf("it is not as /openapi.json says: %v", err)
	}
	return got, nil
}

// bearer returns a header that proves who somebody is.
func (s *stage) bearer(tenant, user string) string {
	token, err := s.host.Keys.Token(tenant, user, time.Hour)
	if err != nil {
		s.t.Error(err)
	}
	return "Bearer " + token
}

// newDatabase makes a database on the shared server.
func newDatabase(t *testing.T) (address string) {
	t.Helper()
	name := fmt.Sprintf("shop_%d", databases.Add(1))
	u, err := url.Parse(postgresServer.Get(t).URL())
	must(t, err)
	conn, err := pgx.Connect(t.Context(), u.String())
	must(t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // it was used
	_, err = conn.Exec(t.Context(), "CREATE DATABASE "+name)
	must(t, err)
	u.Path = name
	return u.String()
}

var databases atomic.Int64

// newNATS starts a server.
func newNATS(t *testing.T) (address string) {
	t.Helper()
	address, _ = newRestartableNATS(t)
	return address
}

// newRestartableNATS starts a server that can be restarted, at its address and with its files.
func newRestartableNATS(t *testing.T) (address string, restart func()) {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(t.TempDir(), "nats"), NoLog: true, NoSigs: true}
	var s *server.Server
	start := func() {
		var err error
		s, err = server.NewServer(o)
		must(t, err)
		s.Start()
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("NATS does not start")
		}
	}
	stop := func() { s.Shutdown(); s.WaitForShutdown() }
	start()
	t.Cleanup(func() { stop() })
	o.Port = s.Addr().(*net.TCPAddr).Port
	return s.ClientURL(), func() { stop(); start() }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
