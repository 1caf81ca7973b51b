package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semelhq/semel/driver"
)

// A storeLook looks at the store now and then, whether or not anybody asks: what reads unknown there is somebody's to
// decide, also if no client comes again. Scrapes are told what the last look has found, so they neither load the
// store nor wait for it. Where the store gave no answer there is none: an old one would hide that something has
// changed.
type storeLook struct {
	store   driver.Store
	counter driver.Counter // nil if the store is none
	count   measuredVerb
	log     *slog.Logger // nil for none
	warned  int64        // how many unknown operations the log knows of

	mu     sync.Mutex
	looked bool
	up     bool
	counts *driver.Counts // nil if not known
}

const (
	lookEvery = 10 * time.Second // at least: a look that takes long is followed by a longer pause
	lookRest  = 4                // times as long as the look took
	countTime = 30 * time.Second // bounds one count
)

// run looks until ctx ends.
func (l *storeLook) run(ctx context.Context) {
	for {
		began := time.Now()
		l.look(ctx)
		pause := time.NewTimer(max(lookEvery, lookRest*time.Since(began)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// look asks the store for a record, any, and what it holds.
func (l *storeLook) look(ctx context.Context) {
	loading, cancel := context.WithTimeout(ctx, readyTime)
	_, err := l.store.Load(loading, driver.ID{})
	cancel()
	var counts *driver.Counts
	if err == nil && l.counter != nil {
		counts = l.ask(ctx)
	}
	if ctx.Err() != nil {
		return // what it was told then says nothing
	}
	l.mu.Lock()
	l.looked, l.up, l.counts = true, err == nil, counts
	l.mu.Unlock()
	if counts == nil {
		return
	}
	if counts.Unknown > l.warned && l.log != nil {
		l.log.LogAttrs(ctx, slog.LevelWarn, "operations in the store read unknown: each may have taken effect, and waits for reconcile or an operator",
			slog.Int64("unknown", counts.Unknown))
	}
	l.warned = counts.Unknown
}

func (l *storeLook) ask(ctx context.Context) *driver.Counts {
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	began := time.Now()
	counts, err := l.counter.Count(ctx)
	l.count.took(ctx, began, err)
	if err != nil {
		return nil
	}
	return &counts
}

var (
	storeUp      = prometheus.NewDesc("idempotency_store_up", "1 if the store answered when it was last asked, every 10 s; 0 if not.", nil, nil)
	storeRecords = prometheus.NewDesc("idempotency_records", "Records in the store, of all processes; may be an estimate.", nil, nil)
	storeRunning = prometheus.NewDesc("idempotency_store_running", "Records stored as running, of all processes, those with a lease that ran out included.", nil, nil)
	storeOldest  = prometheus.NewDesc("idempotency_store_running_oldest_seconds", "Age of the run in the store that started first, of all processes; 0 if there is none.", nil, nil)
	storeUnknown = prometheus.NewDesc("idempotency_unknown", "Operations in the store that read unknown, of all processes: each waits for reconcile or an operator.", nil, nil)
	storeLag     = prometheus.NewDesc("idempotency_sweep_lag_seconds", "How long the record that should have been swept first is overdue; 0 if there is none.", nil, nil)
	storeBytes   = prometheus.NewDesc("idempotency_store_bytes", "What the store's storage takes, if that is known.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (l *storeLook) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeUp, storeRecords, storeRunning, storeOldest, storeUnknown, storeLag, storeBytes} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (l *storeLook) Collect(to chan<- prometheus.Metric) {
	l.mu.Lock()
	looked, up, c := l.looked, l.up, l.counts
	l.mu.Unlock()
	tell := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	switch {
	case !looked:
		return
	case up:
		tell(storeUp, 1)
	default:
		tell(storeUp, 0)
	}
	if c == nil {
		return
	}
	tell(storeRecords, float64(c.Records))
	tell(storeRunning, float64(c.Running))
	tell(storeOldest, c.OldestRunning.Seconds())
	tell(storeUnknown, float64(c.Unknown))
	tell(storeLag, c.SweepLag.Seconds())
	if c.Bytes > 0 {
		tell(storeBytes, float64(c.Bytes))
	}
}
