package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/memstore"
)

// BenchmarkFirstExecution compares small first executions through the gateway with the same through a bare reverse
// proxy (P-11).
func BenchmarkFirstExecution(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(created))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		b.Fatal(err)
	}
	store := memstore.New()
	g, err := New(Config{Listen: ":0", Admin: ":0", Upstream: target, Store: store, Scope: Scope{set: true}})
	if err != nil {
		b.Fatal(err)
	}
	bare := httputil.NewSingleHostReverseProxy(target)
	bare.Transport = newTransport(time.Minute)
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"bare", bare}, {"gateway", g.handler}} {
		b.Run(c.name, func(b *testing.B) { benchmarkPosts(b, c.handler) })
	}
}

var benchmarkKey atomic.Int64

func benchmarkPosts(b *testing.B, h http.Handler) {
	front := httptest.NewServer(h)
	defer front.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	var (
		mu    sync.Mutex
		times []time.Duration
	)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		var own []time.Duration
		for pb.Next() {
			req, err := http.NewRequest("POST", front.URL+"/payments", strings.NewReader(`{"order":"a","amount":1}`))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", strconv.FormatInt(benchmarkKey.Add(1), 10))
			began := time.Now()
			res, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != http.StatusCreated {
				b.Errorf("status %d, %v", res.StatusCode, err)
				return
			}
			own = append(own, time.Since(began))
		}
		mu.Lock()
		times = append(times, own...)
		mu.Unlock()
	})
	slices.Sort(times)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}
