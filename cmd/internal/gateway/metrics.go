package gateway

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
)

// metrics are what /metrics tells. They are the guard's observer, and measure the store through instrument. No
// label grows with keys, tenants or paths: an operation is one of those that the gateway was told, or its method and
// "other".
type metrics struct {
	registry   *prometheus.Registry
	operations atomic.Pointer[map[string]bool]
	guard      atomic.Pointer[semel.Guard]

	requests, observed         *prometheus.CounterVec
	seconds                    *prometheus.HistogramVec
	conflicts, timeouts        prometheus.Counter
	takeovers, fenced          prometheus.Counter
	settleRetries              prometheus.Counter
	events                     *prometheus.CounterVec
	reconciled                 *prometheus.CounterVec
	storeErrors                *prometheus.CounterVec
	storeSeconds               *prometheus.HistogramVec
	upstreamErrors, reloads    *prometheus.CounterVec
	droppedHeaders             prometheus.Counter
	reloadGood, reloadTime     prometheus.Gauge
	store                      storeLook
	executedRuns, replayedOnes atomic.Int64
	lapsed                     lapsedRuns
	connections                atomic.Pointer[clientListener]
}

// dangerous are the events that have no metric of their own.
var dangerous = map[event.Kind]bool{
	event.SettleAbandoned: true, event.NotReplayable: true, event.Unreadable: true, event.GaveUp: true,
	event.NoAnswer: true, event.BodyConsumed: true, event.Panic: true, event.LeaseLost: true, event.RunTooLong: true,
	event.CompletionFailed: true, event.CompletionGivenUp: true,
	event.PlainStored: true, event.OtherSecret: true, event.NoPrincipal: true,
}

// newMetrics returns metrics that know the given operations by name; see [metrics.know] and [metrics.watch].
func newMetrics(known []string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.know(known)
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	gauge := func(name, help string, value func(semel.Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if g := m.guard.Load(); g != nil {
				return value(g.Stats())
			}
			return 0
		}))
	}

	m.requests = counters("idempotency_requests_total",
		"Requests of protected methods by what became of them; of those that were refused or failed, code says why.", "operation", "result", "code")
	m.observed = counters("idempotency_observed_total",
		"Requests on routes that only observe, by what would have become of them.", "operation", "result")
	m.seconds = histograms("idempotency_request_seconds",
		"Time from the arrival of a request to its answer.", requestBuckets, "operation")
	m.conflicts = counter("idempotency_conflict_total",
		"Requests that met a run in progress (result in_progress) or another request under their key (result mismatch).")
	m.timeouts = counter("idempotency_processing_timeout_total",
		"Runs whose lease ran out, or was about to when they were cancelled or passed their longest time; under Hold also such of other processes that a request has found. Each run counts once.")
	m.takeovers = counter("idempotency_takeover_total",
		"Runs under Rerun that followed one that may have had its effect, because it was lost or released.")
	m.fenced = counter("idempotency_fenced_total",
		"Late owners that were refused. They have changed nothing.")
	m.settleRetries = counter("idempotency_settle_retry_total",
		"Settles that failed and are sent again until they are acknowledged.")
	m.events = counters("idempotency_events_total",
		"Dangerous events that have no metric of their own.", "event")
	for kind := range dangerous {
		m.events.WithLabelValues(string(kind)) // an alert on growth needs the zero
	}
	m.reconciled = counters("idempotency_reconcile_total",
		"Questions to the upstream about unknown operations, by what was found.", "result")
	m.storeErrors = counters("idempotency_store_error_total",
		"Verbs of the store that failed.", "store", "verb")
	m.storeSeconds = histograms("idempotency_store_seconds",
		"Time that verbs of the store took, failed ones included.", storeBuckets, "store", "verb")

	m.upstreamErrors = counters("idempotency_upstream_errors_total",
		"Requests to which the upstream gave no whole answer: unreachable is that nothing was sent, of the others it may have had all.", "kind")
	for _, kind := range upstreamErrorKinds {
		m.upstreamErrors.WithLabelValues(kind)
	}
	m.droppedHeaders = counter("idempotency_dropped_headers_total",
		"Headers of requests that were dropped because a service might read their names as others.")
	m.reloads = counters("idempotency_reload_total", "Reloads of the configuration by what became of them.", "result")
	m.reloads.WithLabelValues(reloadSuccess)
	m.reloads.WithLabelValues(reloadFailure)
	single := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	m.reloadGood = single("idempotency_reload_last_successful", "1 if the last reload succeeded, or there was none; 0 if it was refused.")
	m.reloadTime = single("idempotency_reload_success_timestamp_seconds", "When the configuration in service was loaded, in seconds since 1970.")
	m.loaded()
	m.registry.MustRegister(&m.store)
	m.registry.MustRegister(buildInfo())

	gauge("idempotency_running", "Runs in this process whose outcome is not settled.",
		func(s semel.Stats) float64 { return float64(s.Running) })
	gauge("idempotency_running_oldest_seconds", "Age of the run in this process that began first; 0 if there is none.",
		func(s semel.Stats) float64 { return s.OldestRun.Seconds() })
	gauge("idempotency_waiters", "Requests in this process that wait for another run of their operation.",
		func(s semel.Stats) float64 { return float64(s.Waiters) })
	gauge("idempotency_release_backlog", "Claims that this process has given up and not released for good yet.",
		func(s semel.Stats) float64 { return float64(s.Owed) })
	gauge("idempotency_body_memory_bytes", "Bytes of bodies, of keyed requests and their answers, that are held in memory.",
		func(s semel.Stats) float64 { return float64(s.BodyMemory) })
	gauge("idempotency_body_memory_limit_bytes", "The most that idempotency_body_memory_bytes may be.",
		func(s semel.Stats) float64 { return float64(s.MaxBodyMemory) })
	gauge("idempotency_temp_space_bytes", "Bytes of such bodies that are held in temporary files.",
		func(s semel.Stats) float64 { return float64(s.TempSpace) })
	gauge("idempotency_temp_space_limit_bytes", "The most that idempotency_temp_space_bytes may be.",
		func(s semel.Stats) float64 { return float64(s.MaxTempSpace) })
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "idempotency_connections",
			Help: "Connections of clients that are open; max_connections is the most.",
		}, func() float64 {
			if l := m.connections.Load(); l != nil {
				return float64(l.open())
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "idempotency_replay_ratio",
			Help: "Share of replays among the requests that got an outcome, executed, accepted or replayed, since the start; 0 before the first.",
		}, m.replayRatio),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

var (
	requestBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	storeBuckets   = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
)

// know replaces the operations that have a label of their own.
func (m *metrics) know(operations []string) {
	known := make(map[string]bool, len(operations))
	for _, name := range operations {
		known[name] = name != ""
	}
	m.operations.Store(&known)
}

// watch says whose runs are shown. Until then there are none.
func (m *metrics) watch(g *semel.Guard) { m.guard.Store(g) }

// handler serves the metrics.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// methods are those that stand for themselves in a label.
var methods = map[string]bool{
	http.MethodPost: true, http.MethodPut: true, http.MethodPatch: true, http.MethodDelete: true, http.MethodGet: true,
	http.MethodHead: true, http.MethodOptions: true, http.MethodTrace: true,
}

// label returns how an operation appears.
func (m *metrics) label(operation string) string {
	if (*m.operations.Load())[operation] {
		return operation
	}
	if method, _, _ := strings.Cut(operation, " "); methods[method] {
		return method + " other"
	}
	return "other"
}

// Observe counts an event of the guard's.
func (m *metrics) Observe(_ context.Context, e event.Event) {
	switch e.Kind {
	case event.Decision:
		m.decided(&e)
	case event.Takeover:
		m.takeovers.Inc()
	case event.Fenced:
		m.fenced.Inc()
	case event.StoreError:
		if e.Verb == "settle" {
			m.settleRetries.Inc()
		}
	case event.Lapsed, event.LeaseLost, event.RunTooLong:
		if m.lapsed.first(e.ID, e.Fence) {
			m.timeouts.Inc()
		}
	}
	if dangerous[e.Kind] {
		m.events.WithLabelValues(string(e.Kind)).Inc()
	}
}

func (m *metrics) decided(e *event.Event) {
	operation := m.label(e.Operation)
	m.seconds.WithLabelValues(operation).Observe(e.Duration.Seconds())
	if e.Observed {
		m.observed.WithLabelValues(operation, string(e.Result)).Inc()
		return
	}
	code := ""
	if e.Result == event.Refused || e.Result == event.Failed {
		code = string(e.Code)
	}
	m.requests.WithLabelValues(operation, string(e.Result), code).Inc()
	switch e.Result {
	case event.Executed, event.Accepted:
		m.executedRuns.Add(1)
	case event.Replayed:
		m.replayedOnes.Add(1)
	case event.InProgress, event.Mismatch:
		m.conflicts.Inc()
	}
}

func (m *metrics) replayRatio() float64 {
	replayed := m.replayedOnes.Load()
	all := replayed + m.executedRuns.Load()
	if all == 0 {
		return 0
	}
	return float64(replayed) / float64(all)
}

// lapsedRuns remembers which runs were counted as lapsed, because every request that meets one reports it. It forgets
// the oldest.
type lapsedRuns struct {
	mu   sync.Mutex
	seen map[lapsedRun]bool
	ring [lapsedRemembered]lapsedRun
	next int
}

type lapsedRun struct {
	id    driver.ID
	fence uint64
}

const lapsedRemembered = 4096

// first reports whether the run was not seen before.
func (l *lapsedRuns) first(id driver.ID, fence uint64) bool {
	run := lapsedRun{id, fence}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[run] {
		return false
	}
	if l.seen == nil {
		l.seen = make(map[lapsedRun]bool)
	}
	delete(l.seen, l.ring[l.next])
	l.ring[l.next] = run
	l.seen[run] = true
	l.next = (l.next + 1) % len(l.ring)
	return true
}

// Kinds of errors of the upstream.
const (
	upstreamUnreachable = "unreachable" // there was no connection: not one byte of the request was sent
	upstreamSilent      = "no_answer"   // the connection ended without an answer
	upstreamSlow        = "timeout"     // there was none within the route's deadline
	upstreamCut         = "cut_off"     // the answer ended in its middle
)

var upstreamErrorKinds = []string{upstreamUnreachable, upstreamSilent, upstreamSlow, upstreamCut}

// upstreamFailed counts an error of the upstream under a request with the given context. That whoever asked has left,
// or that the run was ended, is none.
func (m *metrics) upstreamFailed(ctx context.Context, kind string) {
	switch err := ctx.Err(); {
	case errors.Is(err, context.Canceled):
		return
	case err != nil && kind != upstreamUnreachable:
		kind = upstreamSlow
	}
	m.upstreamErrors.WithLabelValues(kind).Inc()
}

// What became of a reload.
const (
	reloadSuccess = "success"
	reloadFailure = "failure"
)

// loaded notes that a configuration is in service from now on.
func (m *metrics) loaded() {
	m.reloadGood.Set(1)
	m.reloadTime.SetToCurrentTime()
}

// reloaded counts a reload.
func (m *metrics) reloaded(err error) {
	if err != nil {
		m.reloads.WithLabelValues(reloadFailure).Inc()
		m.reloadGood.Set(0)
		return
	}
	m.reloads.WithLabelValues(reloadSuccess).Inc()
	m.loaded()
}

// watchBreaker shows whether the store's circuit breaker is open. Call it once.
func (m *metrics) watchBreaker(open func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "idempotency_breaker_open",
		Help: "1 if the store's circuit breaker refuses claims, or lets one try; 0 if it is closed.",
	}, func() float64 {
		if open() {
			return 1
		}
		return 0
	}))
}

// buildInfo tells which program this is.
func buildInfo() prometheus.Collector {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "idempotency_build_info", Help: "1; its labels are the program's version and the Go release that built it.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// since returns the seconds that have passed.
func since(began time.Time) float64 { return time.Since(began).Seconds() }
