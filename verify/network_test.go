package verify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A payee counts requests that arrived whole.
type payee struct{ whole atomic.Int32 }

func (p *payee) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	p.whole.Add(1)
	if r.URL.Path == "/api/wait" {
		<-r.Context().Done()
		return
	}
	w.WriteHeader(http.StatusCreated)
	w.Write(bytes.Repeat([]byte("answer "), 20))
}

// arrived waits a while for so many requests, and tells whether they came.
func (p *payee) arrived(n int32) bool {
	for end := time.Now().Add(5 * time.Second); p.whole.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func networkTo(t *testing.T, w *wire) *network {
	t.Helper()
	n, err := newNetwork(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	return n
}

func TestFaultsHitTheRequestOrItsAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   string
		path    string
		answers bool
		arrives int32 // whole
	}{
		{"", "/", true, 1},
		{faultLatency, "/", true, 1},
		{faultJitter, "/", true, 1},
		{faultBandwidth, "/", true, 1},
		{faultReset, "/wait", false, 1}, // while the target is at work
		{faultLost, "/", false, 1},
		{faultCut, "/", false, 1},
		{faultHole, "/", false, 1},
		{faultRefused, "/", false, 0},
		{faultCutRequest, "/", false, 0},
		{faultTwice, "/", true, 2},
	} {
		for _, secure := range []bool{false, true} {
			name := c.fault
			if secure {
				name += " of TLS"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var p *payee
				var a *answer
				asExpected := func() bool {
					refused := errors.Is(a.err, syscall.ECONNREFUSED)
					return (a.err == nil) == c.answers && p.whole.Load() == c.arrives && refused == (c.fault == faultRefused)
				}
				// Faults wait behind what a server says after its handshake, if it says that in time.
				for tries := 0; tries == 0 || secure && tries < 5 && !asExpected(); tries++ {
					p, a = met(t, c.fault, c.path, c.arrives, secure)
				}
				if answered := a.err == nil; answered != c.answers {
					t.Errorf("came %v, want an answer: %t", a, c.answers)
				}
				if got := p.whole.Load(); got != c.arrives && !(secure && c.fault == faultReset) { // there it may end the handshake
					t.Errorf("%d requests arrived, want %d", got, c.arrives)
				}
				if refused := errors.Is(a.err, syscall.ECONNREFUSED); refused != (c.fault == faultRefused) {
					t.Errorf("came %v", a)
				}
			})
		}
	}
}

// met sends a request that is to meet a fault, to a target of its own.
func met(t *testing.T, fault, path string, arrives int32, secure bool) (*payee, *answer) {
	t.Helper()
	p := new(payee)
	w := wireTo(t, p.ServeHTTP, secure)
	n := networkTo(t, w)
	r := request{method: "POST", path: path, body: []byte("a body")}
	a := w.exchange(t.Context(), r, n.manner(fault))
	if fault == faultReset { // soon after the request: it may overtake it, or the target's own count of it
		for tries := 1; a.err != nil && !p.arrived(arrives) && tries < 10; tries++ {
			a = w.exchange(t.Context(), r, n.manner(fault))
		}
	}
	return p, a
}

// Runs alone: it looks for goroutines of all networks.
func TestANetworkLeavesNothingBehind(t *testing.T) { //nolint:paralleltest // see above
	w := wireTo(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // it is cut
		w.Write(body)
	}, false)
	w.timeout = 300 * time.Millisecond
	n, err := newNetwork(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faultKinds {
		r := request{method: "POST", path: "/", body: make([]byte, 300_000)}
		if fault == faultBandwidth {
			r.body = r.body[:2_000] // what it holds it does not give up before its time
		}
		for _, m := range []manner{n.manner(fault), {via: n.manner(fault).via, cut: true}} {
			w.exchange(t.Context(), r, m)
		}
	}
	n.close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		all := make([]byte, 4<<20)
		stacks := bytes.Split(all[:runtime.Stack(all, true)], []byte("\n\n"))
		i := slices.IndexFunc(stacks, func(s []byte) bool { return bytes.Contains(s, []byte("toxiproxy")) })
		if i < 0 {
			return
		}
		if sleep(ctx, 10*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("left behind: %s", stacks[i])
		}
	}
}

func TestANetworkInFrontOfNothing(t *testing.T) {
	t.Parallel()
	w := wireTo(t, func(http.ResponseWriter, *http.Request) {}, true)
	w.tls = nil // so that its certificate is not trusted
	if n, err := newNetwork(t.Context(), w); err == nil {
		n.close()
		t.Error("a network in front of a server that can't be trusted")
	}
}
