package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/memstore"
)

// countingStore is a memory store that can say what it holds, and has an audit trail.
type countingStore struct {
	*memstore.Store
	count func(context.Context) (driver.Counts, error)
}

func (s *countingStore) Count(ctx context.Context) (driver.Counts, error) { return s.count(ctx) }

func (s *countingStore) Audit(context.Context, driver.AuditEntry) error { return nil }

func (s *countingStore) AuditTrail(context.Context, *driver.ID, int, func(driver.AuditEntry) bool) error {
	return nil
}

var someCounts = driver.Counts{
	Records: 7, Running: 3, Unknown: 2, OldestRunning: 90 * time.Second, SweepLag: 1500 * time.Millisecond, Bytes: 4096,
}

func newCountingStore() *countingStore {
	return &countingStore{memstore.New(), func(context.Context) (driver.Counts, error) { return someCounts, nil }}
}

// exercised returns metrics of which every one has a value.
func exercised(t *testing.T) *metrics {
	t.Helper()
	m := newMetrics([]string{"POST /payments/{id}"})
	s := m.instrument(newCountingStore(), "memory")
	if _, err := s.Load(t.Context(), driver.ID{1}); err != nil {
		t.Fatal(err)
	}
	m.store.look(t.Context())
	m.watchBreaker(func() bool { return true })
	m.Observe(t.Context(), event.Event{Kind: event.Decision, Operation: "POST /payments/{id}", Result: event.Executed, Duration: time.Millisecond})
	m.Observe(t.Context(), event.Event{Kind: event.Decision, Operation: "POST /payments/{id}", Result: event.Replayed, Observed: true})
	m.reconciled.WithLabelValues("later").Inc()
	return m
}

func TestR86_TheMetricsAreTheseAndNoOthers(t *testing.T) {
	t.Parallel()
	const want = `
idempotency_body_memory_bytes gauge
idempotency_body_memory_limit_bytes gauge
idempotency_breaker_open gauge
idempotency_build_info gauge goversion,version
idempotency_conflict_total counter
idempotency_connections gauge
idempotency_dropped_headers_total counter
idempotency_events_total counter event
idempotency_fenced_total counter
idempotency_observed_total counter operation,result
idempotency_processing_timeout_total counter
idempotency_reconcile_total counter result
idempotency_records gauge
idempotency_release_backlog gauge
idempotency_reload_last_successful gauge
idempotency_reload_success_timestamp_seconds gauge
idempotency_reload_total counter result
idempotency_replay_ratio gauge
idempotency_request_seconds histogram operation
idempotency_requests_total counter code,operation,result
idempotency_running gauge
idempotency_running_oldest_seconds gauge
idempotency_settle_retry_total counter
idempotency_store_bytes gauge
idempotency_store_error_total counter store,verb
idempotency_store_running gauge
idempotency_store_running_oldest_seconds gauge
idempotency_store_seconds histogram store,verb
idempotency_store_up gauge
idempotency_sweep_lag_seconds gauge
idempotency_takeover_total counter
idempotency_temp_space_bytes gauge
idempotency_temp_space_limit_bytes gauge
idempotency_unknown gauge
idempotency_upstream_errors_total counter kind
idempotency_waiters gauge
`
	m := exercised(t)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	others := 0
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "idempotency_") {
			others++
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		line := f.GetName() + " " + strings.ToLower(f.GetType().String())
		got = append(got, strings.TrimSpace(line+" "+strings.Join(labels, ",")))
		if f.GetHelp() == "" {
			t.Errorf("%s is not explained", f.GetName())
		}
	}
	if s := "\n" + strings.Join(got, "\n") + "\n"; s != want {
		t.Errorf("there are %s\nwant %s", s, want)
	}
	proof.Reads("docs")
	doc, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "idempotency_") && !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/operations.md does not tell of %s", name)
		}
	}
	if others == 0 {
		t.Error("nothing is told of the process itself")
	}
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestR86_AnEventIsCountedByWhatItMeans(t *testing.T) {
	t.Parallel()
	decision := func(r event.Result) event.Event {
		return event.Event{Kind: event.Decision, Operation: "POST /a", Result: r}
	}
	run := func(kind event.Kind, id byte, fence uint64) event.Event {
		return event.Event{Kind: kind, ID: driver.ID{id}, Fence: fence}
	}
	for _, c := range []struct {
		name, metric string
		events       []event.Event
		want         string
	}{
		{"conflict", "idempotency_conflict_total", []event.Event{
			decision(event.InProgress), decision(event.Mismatch), decision(event.Executed),
			decision(event.Unknown), decision(event.Refused),
		}, "idempotency_conflict_total 2"},
		{"takeover", "idempotency_takeover_total", []event.Event{run(event.Takeover, 1, 2)}, "idempotency_takeover_total 1"},
		{"fenced", "idempotency_fenced_total", []event.Event{run(event.Fenced, 1, 2)}, "idempotency_fenced_total 1"},
		{"settle retries", "idempotency_settle_retry_total", []event.Event{
			{Kind: event.StoreError, Verb: "settle"}, {Kind: event.StoreError, Verb: "claim"}, {Kind: event.StoreError, Verb: "settle"},
		}, "idempotency_settle_retry_total 2"},
		{"leases that ran out, each run once", "idempotency_processing_timeout_total", []event.Event{
			run(event.Lapsed, 1, 1), run(event.Lapsed, 1, 1), run(event.RunTooLong, 2, 1), run(event.Lapsed, 2, 1),
			run(event.LeaseLost, 1, 2),
		}, "idempotency_processing_timeout_total 3"},
		{"other dangerous events", "idempotency_events_total", []event.Event{run(event.Panic, 1, 1)}, `idempotency_events_total{event="body_consumed"} 0
idempotency_events_total{event="completion_failed"} 0
idempotency_events_total{event="completion_given_up"} 0
idempotency_events_total{event="gave_up"} 0
idempotency_events_total{event="lease_lost"} 0
idempotency_events_total{event="no_answer"} 0
idempotency_events_total{event="no_principal"} 0
idempotency_events_total{event="not_replayable"} 0
idempotency_events_total{event="other_secret"} 0
idempotency_events_total{event="panic"} 1
idempotency_events_total{event="plain_stored"} 0
idempotency_events_total{event="run_too_long"} 0
idempotency_events_total{event="settle_abandoned"} 0
idempotency_events_total{event="unreadable"} 0`},
		{"what a route that observes would have done is apart", "idempotency_requests_total", []event.Event{
			{Kind: event.Decision, Operation: "POST /a", Result: event.Replayed, Observed: true}, decision(event.Executed),
		}, `idempotency_requests_total{code="",operation="POST /a",result="executed"} 1`},
		{"replays among outcomes", "idempotency_replay_ratio", []event.Event{
			decision(event.Executed), decision(event.Replayed), decision(event.Replayed), decision(event.Replayed),
			decision(event.Refused),
			{Kind: event.Decision, Result: event.Replayed, Observed: true},
		}, "idempotency_replay_ratio 0.75"},
		{"no outcome yet", "idempotency_replay_ratio", nil, "idempotency_replay_ratio 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMetrics([]string{"POST /a"})
			for _, e := range c.events {
				m.Observe(t.Context(), e)
			}
			if got := scraped(t, m, c.metric); got != c.want {
				t.Errorf("scraped\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// scraped returns the lines of one metric, sorted.
func scraped(t *testing.T, m *metrics, metric string) string {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := metric
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			lines = append(lines, fmt.Sprint(name, " ", one.GetCounter().GetValue()+one.GetGauge().GetValue()+float64(one.GetHistogram().GetSampleCount())))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestR86_NoLabelGrowsWithPathsOrTenants(t *testing.T) {
	t.Parallel()
	m := newMetrics([]string{"POST /payments/{id}", ""})
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 2500 {
				n := w*2500 + i
				e := event.Event{Kind: event.Decision, Result: event.Executed, ID: driver.ID{byte(n), byte(n >> 8)}, Correlation: fmt.Sprint(n)}
				for _, operation := range []string{
					fmt.Sprintf("POST /tenants/%d", n), fmt.Sprintf("PATCH /tenants/%d", n), fmt.Sprintf("M%d /", n), fmt.Sprint(n), "", "POST /payments/{id}",
				} {
					e.Operation = operation
					m.Observe(context.Background(), e)
				}
				e.Kind = event.Lapsed
				m.Observe(context.Background(), e)
			}
		})
	}
	all.Wait()
	want := `idempotency_requests_total{code="",operation="PATCH other",result="executed"} 10000
idempotency_requests_total{code="",operation="POST /payments/{id}",result="executed"} 10000
idempotency_requests_total{code="",operation="POST other",result="executed"} 10000
idempotency_requests_total{code="",operation="other",result="executed"} 30000`
	if got := scraped(t, m, "idempotency_requests_total"); got != want {
		t.Errorf("scraped\n%s\nwant\n%s", got, want)
	}
	if n := strings.Count(scraped(t, m, "idempotency_request_seconds"), "\n") + 1; n != 4 {
		t.Errorf("%d operations in the histogram, want 4", n)
	}
	if n := len(m.lapsed.seen); n > lapsedRemembered {
		t.Errorf("%d lapsed runs are remembered, want %d at most", n, lapsedRemembered)
	}
}

func TestOperationsAreKnownByNameAfterAReload(t *testing.T) {
	t.Parallel()
	m := newMetrics(nil)
	if got := m.label("POST /b"); got != "POST other" {
		t.Errorf("labelled %q before it is known", got)
	}
	if m.know([]string{"POST /b"}); m.label("POST /b") != "POST /b" {
		t.Errorf("labelled %q although it is known", m.label("POST /b"))
	}
}

func TestAMeasuredStoreIsWhatTheStoreIs(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	seizer, auditor := driver.Seizer(memory), driver.Auditor(newCountingStore())
	for name, c := range map[string]struct {
		store          driver.Store
		seizes, audits bool
	}{
		"neither": {struct{ driver.Store }{memory}, false, false},
		"seizes": {struct {
			driver.Store
			driver.Seizer
		}{memory, seizer}, true, false},
		"audits": {struct {
			driver.Store
			driver.Auditor
		}{memory, auditor}, false, true},
		"both": {newCountingStore(), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMetrics(nil).instrument(c.store, "s")
			if _, ok := s.(driver.Seizer); ok != c.seizes {
				t.Errorf("it is a Seizer: %v, want %v", ok, c.seizes)
			}
			if _, ok := s.(driver.Auditor); ok != c.audits {
				t.Errorf("it is an Auditor: %v, want %v", ok, c.audits)
			}
		})
	}
}

func TestR86_EveryVerbOfTheStoreIsMeasured(t *testing.T) {
	t.Parallel()
	m := newMetrics(nil)
	s := m.instrument(newCountingStore(), "memory")
	ctx, id := t.Context(), driver.ID{1}
	rec, owned, err := s.Claim(ctx, id, driver.Claim{Token: driver.NewToken()})
	check := func(verb string, ok bool, err error) {
		t.Helper()
		if !ok || err != nil {
			t.Errorf("%s: %v, %v", verb, ok, err)
		}
	}
	check("claim", owned, err)
	owned, err = s.Extend(ctx, id, rec.Owner(), driver.Extension{})
	check("extend", owned, err)
	_, owned, err = s.Settle(ctx, id, rec.Owner(), driver.Outcome{State: driver.Unknown})
	check("settle", owned, err)
	rec, err = s.(driver.Seizer).Seize(ctx, id, driver.NewToken())
	check("seize", rec.Seized, err)
	owned, err = s.(driver.Seizer).Forget(ctx, id, rec.Owner())
	check("forget", owned, err)
	rec, err = s.Load(ctx, id)
	check("load", rec.State == driver.Absent, err)
	_, err = s.Sweep(ctx, 1)
	check("sweep", true, err)
	check("list", true, s.(driver.Lister).List(ctx, driver.Query{}, func(driver.ID, driver.Record) bool { return true }))
	check("audit", true, s.(driver.Auditor).Audit(ctx, driver.AuditEntry{}))
	check("audit", true, s.(driver.Auditor).AuditTrail(ctx, nil, 1, nil))
	want := `idempotency_store_seconds{store="memory",verb="audit"} 2
idempotency_store_seconds{store="memory",verb="claim"} 1
idempotency_store_seconds{store="memory",verb="count"} 1
idempotency_store_seconds{store="memory",verb="extend"} 1
idempotency_store_seconds{store="memory",verb="forget"} 1
idempotency_store_seconds{store="memory",verb="list"} 1
idempotency_store_seconds{store="memory",verb="load"} 1
idempotency_store_seconds{store="memory",verb="seize"} 1
idempotency_store_seconds{store="memory",verb="settle"} 1
idempotency_store_seconds{store="memory",verb="sweep"} 1`
	m.store.look(ctx) // asks for the count
	if got := scraped(t, m, "idempotency_store_seconds"); got != want {
		t.Errorf("scraped\n%s\nwant\n%s", got, want)
	}
}

// unextendable fails each Extend with an error of the test's choice.
type unextendable struct {
	driver.Store
	err error
}

func (s unextendable) Extend(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) {
	return false, s.err
}

func TestR86_WhatCountsAsAFailureOfTheStore(t *testing.T) {
	t.Parallel()
	left, leave := context.WithCancel(t.Context())
	leave()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"no error":              {t.Context(), nil, "0"},
		"an error":              {t.Context(), broken, "1"},
		"full":                  {t.Context(), driver.ErrFull, "1"},
		"too late":              {late, context.DeadlineExceeded, "1"},
		"its caller has left":   {left, context.Canceled, "0"},
		"held by this process":  {t.Context(), fmt.Errorf("extend: %w", driver.ErrHeld), "0"},
		"unreadable":            {t.Context(), driver.ErrUnreadable, "1"},
		"an error it calls so":  {t.Context(), context.Canceled, "1"},
		"an error as it leaves": {left, broken, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMetrics(nil)
			s := m.instrument(unextendable{memstore.New(), c.err}, "s")
			if _, err := s.Extend(c.ctx, driver.ID{}, driver.Owner{}, driver.Extension{}); !errors.Is(err, c.err) {
				t.Fatalf("the error became %v", err)
			}
			want := `idempotency_store_error_total{store="s",verb="extend"} ` + c.want
			if got := scraped(t, m, "idempotency_store_error_total"); !strings.Contains(got, want) {
				t.Errorf("scraped\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestR56_R86_TheGatewayTellsWhatItIsDoing(t *testing.T) {
	t.Parallel()
	var (
		arrived = make(chan struct{}, 1)
		goOn    = make(chan struct{})
		once    atomic.Bool
	)
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if once.CompareAndSwap(false, true) {
			arrived <- struct{}{}
			<-goOn
		}
		created(w, r)
	})
	g := start(t, u.URL, func(c *Config) {
		c.Store, c.StoreAddress = newCountingStore(), "memory://"
		c.Routes = []Route{{Match: "POST /payments"}}
	})
	first := make(chan answer, 1)
	go func() {
		a, err := tryAsk("POST", g.url+"/payments", `{"amount":1}`, "Idempotency-Key", "k", "Content-Type", "application/json")
		if err != nil {
			t.Error(err)
		}
		first <- a
	}()
	<-arrived
	wantMetrics(t, g, "idempotency_running 1", "idempotency_waiters 0", "idempotency_release_backlog 0")
	close(goOn)
	if a := <-first; a.status != http.StatusCreated {
		t.Fatalf("answered %d", a.status)
	}
	if a := post(t, g.url, "k"); !a.replayed() {
		t.Errorf("answered %d, not replayed", a.status)
	}
	ask(t, "POST", g.url+"/elsewhere/1", `{}`, "Idempotency-Key", "k2")
	wantMetrics(t, g, "idempotency_running 0", "idempotency_running_oldest_seconds 0",
		`idempotency_requests_total{code="",operation="POST /payments",result="executed"} 1`,
		`idempotency_requests_total{code="",operation="POST /payments",result="replayed"} 1`,
		`idempotency_requests_total{code="",operation="POST other",result="executed"} 1`,
		`idempotency_request_seconds_count{operation="POST /payments"} 2`,
		`idempotency_store_seconds_count{store="memory",verb="settle"} 3`, // one of them is of the identity secret's check value
		"idempotency_records 7", "idempotency_store_running 3", "idempotency_store_running_oldest_seconds 90", "idempotency_unknown 2",
		"idempotency_sweep_lag_seconds 1.5", "idempotency_store_bytes 4096", "go_goroutines ")
}

// wantMetrics fails unless the admin address comes to tell all the lines.
func wantMetrics(t *testing.T, g *running, lines ...string) {
	t.Helper()
	for _, line := range lines {
		eventually(t, line, func() bool {
			return strings.Contains(ask(t, "GET", g.admin+"/metrics", "").body, "\n"+line)
		})
	}
}
