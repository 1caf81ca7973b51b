package webhooktest

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/webhook"
	"github.com/semelhq/semel/sqlitestore"
)

func openStore(t *testing.T, name, table string) (*sqlitestore.Store, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := db.Exec("CREATE TABLE " + table + " (id TEXT)"); err != nil {
		t.Fatal(err)
	}
	return s, db
}

// Orders are placed in one database, and handled in another one, by webhooks whose answers get lost or are failures.
func TestEachCommitHasOneEffectAtTheReceiver(t *testing.T) {
	t.Parallel()
	const orders = 40
	handled, receiverDB := openStore(t, "receiver.db", "handled")
	guard, err := semel.New(handled, semel.ScopeFunc(webhook.Scope), semel.Rerun, semel.Options{Policy: semel.Policy{OneCommit: true}})
	if err != nil {
		t.Fatal(err)
	}
	source := func(*http.Request) (webhook.Source, error) {
		return webhook.Source{Name: "shop", Secrets: []string{secret}}, nil
	}
	receiver, err := webhook.NewReceiver(guard, source, webhook.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	attempts := map[string]int{}
	handler := receiver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("webhook-id")
		err := handled.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO handled (id) VALUES (?)", id); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if attempts[id]%3 == 2 {
				return fmt.Errorf("attempt %d fails", attempts[id])
			}
			w.WriteHeader(http.StatusNoContent)
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		id := r.Header.Get("webhook-id")
		attempts[id]++
		lost := attempts[id] == 1 && id[len(id)-1]%2 == 0
		mu.Unlock()
		if lost {
			handler.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	shop, shopDB := openStore(t, "shop.db", "orders")
	box, err := sqlitestore.OpenOutbox(shop, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := webhook.New(func(context.Context, *outbox.Message) (webhook.Endpoint, error) {
		return webhook.Endpoint{ID: "receiver", URL: server.URL, Secrets: []string{another, secret}}, nil
	}, webhook.Options{AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	o := sender.RelayOptions()
	o.Backoff = func(int) time.Duration { return time.Millisecond }
	relay, err := outbox.NewRelay(box, sender, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	for n := range orders {
		id := fmt.Sprintf("msg_%d", n)
		err := shop.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", id); err != nil {
				return err
			}
			return box.Add(ctx, tx, outbox.Message{ID: id, Topic: fmt.Sprint("lane-", n%4), Payload: []byte(payload)})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for {
		stats, err := box.Stats(t.Context())
		if err != nil || stats.Dead > 0 {
			t.Fatalf("%+v, %v", stats, err)
		}
		if stats.Pending == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var placed, effects, different int
	err = shopDB.QueryRow("SELECT count(*) FROM orders").Scan(&placed)
	if err == nil {
		err = receiverDB.QueryRow("SELECT count(*), count(DISTINCT id) FROM handled").Scan(&effects, &different)
	}
	if err != nil || placed != orders || effects != orders || different != orders {
		t.Errorf("%d orders, %d effects of %d messages, %v; want %d of each", placed, effects, different, err, orders)
	}
	again := 0
	for _, n := range attempts {
		if n > 1 {
			again++
		}
	}
	if again == 0 {
		t.Error("nothing was sent twice, so nothing is proved")
	}
}
