package semel_test

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// wires are the protocols over which fidelity is proved.
var wires = []string{"HTTP/1.1", "HTTP/2.0"}

// A wire is a handler behind a real server, and a client of it that changes nothing on its own.
type wire struct {
	url    string
	client *http.Client
}

func newWire(t testing.TB, proto string, h http.Handler) *wire {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(proto == "HTTP/1.1")
	protocols.SetUnencryptedHTTP2(proto == "HTTP/2.0")
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handlers panic on purpose
	s.Config.Protocols = &protocols
	s.Start()
	t.Cleanup(s.Close)
	tr := &http.Transport{Protocols: &protocols, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	w := &wire{url: s.URL, client: &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if proto == "HTTP/2.0" {
		w.connect(t)
	}
	return w
}

// connect opens the connection that requests use. On a machine that stands still for 2 s net/http ends one that is new:
// then another is opened. No handler sees the request.
func (w *wire) connect(t testing.TB) {
	t.Helper()
	for try := 1; ; try++ {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, w.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Opaque = "*"
		res, err := w.client.Do(r)
		if err == nil {
			res.Body.Close()
			return
		}
		if try == 5 {
			t.Fatal(err)
		}
	}
}

// A reply is what a client saw of an answer.
type reply struct {
	proto   string
	status  int
	header  http.Header
	trailer http.Header
	length  int64 // -1 if the answer had no Content-Length
	body    string
	err     error    // reading the body
	early   []string // what 1xx answers said
}

func (r *reply) marked() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// send sends a keyed POST and reads the whole answer; header holds name, value pairs. An answer that breaks before its
// header is a reply with status 0 and an error.
func (w *wire) send(t testing.TB, key, body string, header ...string) *reply {
	t.Helper()
	res, early, err := w.open(t.Context(), key, body, header...)
	if err != nil {
		return &reply{err: err}
	}
	return drain(res, early)
}

// open sends the request and returns the answer with its body unread.
func (w *wire) open(ctx context.Context, key, body string, header ...string) (*http.Response, *earlyHints, error) {
	early := &earlyHints{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: early.add})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/payments", strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.GetBody = nil // no second attempt by itself
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	res, err := w.client.Do(r)
	return res, early, err
}

func drain(res *http.Response, early *earlyHints) *reply {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return &reply{
		proto: res.Proto, status: res.StatusCode, header: res.Header, trailer: res.Trailer, length: res.ContentLength,
		body: string(body), err: err, early: early.list(),
	}
}

// earlyHints collects the Link headers of 1xx answers.
type earlyHints struct {
	mu    sync.Mutex
	links []string
}

func (e *earlyHints) add(_ int, h textproto.MIMEHeader) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.links = append(e.links, h["Link"]...)
	return nil
}

func (e *earlyHints) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.links)
}

// ours are the headers that the guard adds, and those that no two answers share.
var ours = []string{
	"Cache-Control", "Date", "Idempotency-Expires", "Idempotency-Key", "Idempotency-Retryable", "Idempotent-Replayed",
	"X-Correlation-Id",
}

// without returns a copy of h without the named headers.
func without(h http.Header, names ...string) http.Header {
	out := maps.Clone(h)
	for _, name := range names {
		delete(out, name)
	}
	return out
}

// only returns the one record of a store.
func only(t testing.TB, s *memstore.Store) driver.Record {
	t.Helper()
	var all []driver.Record
	err := s.List(t.Context(), driver.Query{}, func(_ driver.ID, rec driver.Record) bool {
		all = append(all, rec)
		return true
	})
	if err != nil || len(all) != 1 {
		t.Fatalf("the store holds %d records, %v; want one", len(all), err)
	}
	return all[0]
}

// seized takes the one record of a store from its owner, as an operator does.
func seized(t testing.TB, s *memstore.Store) {
	t.Helper()
	var id driver.ID
	s.List(context.Background(), driver.Query{}, func(found driver.ID, _ driver.Record) bool { //nolint:errcheck // memory can be listed
		id = found
		return false
	})
	token := driver.NewToken()
	if rec, err := s.Seize(context.Background(), id, token); err != nil || rec.Token != token {
		t.Errorf("seize: %v, %v", rec, err)
	}
}

// unavailable checks that a repeat is told replay-unavailable.
func unavailable(t testing.TB, r *reply) {
	t.Helper()
	if r.err != nil || r.status != http.StatusConflict || !strings.Contains(r.body, string(refusal.ReplayUnavailable)) || r.marked() {
		t.Errorf("the repeat got %d %q, %v; want replay-unavailable", r.status, r.body, r.err)
	}
}

// thrown serves a request and returns what the handler's layers let through as a panic, nil if nothing.
func thrown(h http.Handler, w http.ResponseWriter, r *http.Request) (v any) {
	defer func() { v = recover() }()
	h.ServeHTTP(w, r)
	return nil
}

// broken reports whether an answer ended before its end.
func (r *reply) broken() bool { return r.err != nil && !errors.Is(r.err, context.Canceled) }

// exists reports whether there is a file of that name.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// list returns the names of the files in a folder.
func list(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
