package jstest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/cmd/internal/gateway"
	"github.com/semelhq/semel/memstore"
)

// A shop is a service with a page that loads the client, behind a gateway that protects its payments.
type shop struct {
	url string
	cut func() // every connection to it
	mux *http.ServeMux

	loggedOut atomic.Bool // whoever pays is led to a page for logging in

	mu      sync.Mutex
	ledger  []string            // the orders that were charged, one line a charge
	held    map[string]chan any // closed when a payment of the order may go on
	arrived map[string]func()   // is told of each
}

// openShop opens one until the test ends.
func openShop(t *testing.T) *shop {
	t.Helper()
	mux := http.NewServeMux()
	s := &shop{mux: mux, held: map[string]chan any{}, arrived: map[string]func(){}}
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<title>Log in</title>")
	})
	mux.HandleFunc("POST /payments", s.pay)
	mux.Handle("GET /client/", http.StripPrefix("/client/", http.FileServer(http.Dir(client+"/src"))))
	mux.HandleFunc("GET /checkout", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		http.ServeFileFS(w, r, testdata, "testdata/checkout.html")
	})
	service := httptest.NewServer(mux)
	t.Cleanup(service.Close)

	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: gatewayBefore(t, service.URL, gateway.CORS{})})
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of what is cut
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && s.loggedOut.Load() {
			http.Redirect(w, r, "/login", http.StatusFound)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s.url, s.cut = front.URL, front.CloseClientConnections
	return s
}

// serve gives pages the files of a folder below a path.
func (s *shop) serve(t *testing.T, path, dir string) {
	t.Helper()
	s.mux.Handle("GET "+path, http.StripPrefix(path, http.FileServer(http.Dir(dir))))
}

// gatewayBefore runs a gateway in front of a service until the test ends, and returns its address.
func gatewayBefore(t *testing.T, service string, cors gateway.CORS) string {
	t.Helper()
	upstream, err := gateway.ParseUpstream(service)
	if err != nil {
		t.Fatal(err)
	}
	scope, err := gateway.ParseScope("single")
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Upstream: upstream, Store: memstore.New(), Scope: scope, CORS: cors,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the gateway: %v", err)
		}
	})
	return g.Addr().String()
}

// hold keeps payments of an order from being made until the function that it returns is called, which may be done
// often. arrived is closed when the first is there.
func (s *shop) hold(t *testing.T, order string) (arrived <-chan any, release func()) {
	held, there := make(chan any), make(chan any)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[order], s.arrived[order] = held, sync.OnceFunc(func() { close(there) })
	release = sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	return there, release
}

// pay charges a card, whether or not whoever asked is still there.
func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	var p struct{ Order string }
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	held, arrived := s.held[p.Order], s.arrived[p.Order]
	s.mu.Unlock()
	if held != nil {
		arrived()
		<-held
	}
	s.mu.Lock()
	s.ledger = append(s.ledger, p.Order)
	charge := fmt.Sprintf("ch_%d", len(s.ledger))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"charge":%q}`, charge)
}

// charges counts the lines of the ledger for an order.
func (s *shop) charges(order string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(s.ledger), func(o string) bool { return o != order }))
}

// charge returns the number of an order's first charge.
func (s *shop) charge(order string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("ch_%d", slices.Index(s.ledger, order)+1)
}

// await waits for a channel, but not for ever.
func await(t *testing.T, c <-chan any, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
	}
}
