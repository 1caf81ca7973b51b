package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/cmd/internal/gateway"
	"github.com/semelhq/semel/driver"
)

// Three gateways on one storage are restarted, one after the other, while clients ask all of them: one effect a key,
// and no client is told anything else than to ask again.
func TestRollingRestartOfThreeGateways(t *testing.T) {
	t.Parallel()
	r, p := redis(t), postgres(t, nil)
	for _, tc := range []struct {
		name string
		open func(*testing.T) driver.Store
	}{
		{"redis", func(t *testing.T) driver.Store { return openRedis(t, r.Addr()) }},
		{"postgres", func(t *testing.T) driver.Store { return openPostgres(t, p.Addr()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger()
			upstream := httptest.NewServer(l)
			t.Cleanup(upstream.Close)
			f := &fleet{world: l}
			var live [3]atomic.Pointer[front]
			for i := range live {
				live[i].Store(newFront(t, upstream.URL, tc.open(t)))
			}
			var handlers []http.Handler
			for i := range live {
				handlers = append(handlers, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { live[i].Load().ask(w, r) }))
			}
			ending := make(chan struct{})
			var clients sync.WaitGroup
			var operations atomic.Int64
			for n := range 4 {
				clients.Go(func() {
					for i := n; ; i++ {
						select {
						case <-ending:
							return
						default:
						}
						key := f.key("rolling")
						answers := map[string]bool{}
						for _, h := range handlers {
							answers[pursue(t, key, h, handlers[i%len(handlers)])] = true
						}
						f.judge(t, key, answers)
						operations.Add(1)
					}
				})
			}
			for i := range live {
				before := operations.Load()
				old := live[i].Swap(newFront(t, upstream.URL, tc.open(t)))
				must(t, old.stop())
				for operations.Load() < before+10 && !t.Failed() { // the new one has its share
					time.Sleep(time.Millisecond)
				}
			}
			close(ending)
			clients.Wait()
		})
	}
}

// A front is a gateway with its own client of the storage.
type front struct {
	url  string
	stop func() error // drains it
}

func newFront(t *testing.T, upstream string, s driver.Store) *front {
	t.Helper()
	to, err := gateway.ParseUpstream(upstream)
	must(t, err)
	scope, err := gateway.ParseScope("single")
	must(t, err)
	g, err := gateway.New(gateway.Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Upstream: to, Store: s, Scope: scope,
	})
	must(t, err)
	must(t, g.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { must(t, stop()) })
	return &front{url: "http://" + g.Addr().String(), stop: stop}
}

// ask passes a client's request on to the gateway. Where that gives no answer the client asks again.
func (f *front) ask(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		stopped(w)
		return
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, f.url+r.URL.Path, strings.NewReader(string(body)))
	if err != nil {
		stopped(w)
		return
	}
	again.Header = r.Header
	res, err := http.DefaultClient.Do(again)
	if err != nil {
		stopped(w) // the connection was closed
		return
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		stopped(w)
		return
	}
	w.WriteHeader(res.StatusCode)
	fmt.Fprint(w, string(body))
}
