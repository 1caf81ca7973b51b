package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semelhq/semel/driver"
)

// instrument returns s with its verbs measured under a name, and has the metrics' look at the store ask s. What it
// returns is a [driver.Seizer] and a [driver.Auditor] exactly if s is: the guard's own verbs and what it reconciles
// with; and it wakes and lists as s does. Whoever counts uses s itself. Call it once.
func (m *metrics) instrument(s driver.Store, name string) driver.Store {
	m.store.store = s
	if counter, ok := s.(driver.Counter); ok {
		m.store.counter, m.store.count = counter, m.verb(name, "count")
	}
	base := &measuredStore{
		store: s, claim: m.verb(name, "claim"), extend: m.verb(name, "extend"), settle: m.verb(name, "settle"),
		load: m.verb(name, "load"), sweep: m.verb(name, "sweep"),
	}
	if _, lists := s.(driver.Lister); lists {
		base.list = m.verb(name, "list")
	}
	seizer, seizes := s.(driver.Seizer)
	auditor, audits := s.(driver.Auditor)
	var (
		seizing  = &measuredSeizer{seizer: seizer}
		auditing = &measuredAuditor{auditor: auditor}
	)
	if seizes {
		seizing.seize, seizing.forget = m.verb(name, "seize"), m.verb(name, "forget")
	}
	if audits {
		auditing.audit = m.verb(name, "audit")
	}
	switch {
	case seizes && audits:
		return struct {
			*measuredStore
			*measuredSeizer
			*measuredAuditor
		}{base, seizing, auditing}
	case seizes:
		return struct {
			*measuredStore
			*measuredSeizer
		}{base, seizing}
	case audits:
		return struct {
			*measuredStore
			*measuredAuditor
		}{base, auditing}
	}
	return base
}

// A measuredVerb is where one verb of a store is counted.
type measuredVerb struct {
	seconds prometheus.Observer
	errors  prometheus.Counter
}

func (m *metrics) verb(store, verb string) measuredVerb {
	return measuredVerb{m.storeSeconds.WithLabelValues(store, verb), m.storeErrors.WithLabelValues(store, verb)}
}

// took counts a call that began at the given time. That its caller has left is not the store's failure, nor is a
// renewal that waits for this process's own transaction.
func (v *measuredVerb) took(ctx context.Context, began time.Time, err error) {
	v.seconds.Observe(since(began))
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, driver.ErrHeld) {
		v.errors.Inc()
	}
}

type measuredStore struct {
	store                              driver.Store
	claim, extend, settle, load, sweep measuredVerb
	list                               measuredVerb // of a store that lists
}

func (s *measuredStore) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	began := time.Now()
	rec, owned, err := s.store.Claim(ctx, id, c)
	s.claim.took(ctx, began, err)
	return rec, owned, err
}

func (s *measuredStore) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	began := time.Now()
	owned, err := s.store.Extend(ctx, id, by, x)
	s.extend.took(ctx, began, err)
	return owned, err
}

func (s *measuredStore) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	began := time.Now()
	rec, owned, err := s.store.Settle(ctx, id, by, o)
	s.settle.took(ctx, began, err)
	return rec, owned, err
}

func (s *measuredStore) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	began := time.Now()
	rec, err := s.store.Load(ctx, id)
	s.load.took(ctx, began, err)
	return rec, err
}

func (s *measuredStore) Sweep(ctx context.Context, limit int) (int, error) {
	began := time.Now()
	n, err := s.store.Sweep(ctx, limit)
	s.sweep.took(ctx, began, err)
	return n, err
}

// List implements [driver.Lister]. Whether the store lists was looked at before.
func (s *measuredStore) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	l, ok := s.store.(driver.Lister)
	if !ok {
		return errors.ErrUnsupported
	}
	began := time.Now()
	err := l.List(ctx, q, yield)
	s.list.took(ctx, began, err)
	return err
}

// Scan implements [driver.Scanner].
func (s *measuredStore) Scan(ctx context.Context) error {
	if scanner, ok := s.store.(driver.Scanner); ok {
		return scanner.Scan(ctx)
	}
	return errors.ErrUnsupported
}

// Wake implements [driver.Waker].
func (s *measuredStore) Wake(ctx context.Context, settled func(driver.ID)) error {
	if w, ok := s.store.(driver.Waker); ok {
		return w.Wake(ctx, settled)
	}
	return errors.ErrUnsupported
}

type measuredSeizer struct {
	seizer        driver.Seizer
	seize, forget measuredVerb
}

func (s *measuredSeizer) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	began := time.Now()
	rec, err := s.seizer.Seize(ctx, id, t)
	s.seize.took(ctx, began, err)
	return rec, err
}

func (s *measuredSeizer) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	began := time.Now()
	forgotten, err := s.seizer.Forget(ctx, id, by)
	s.forget.took(ctx, began, err)
	return forgotten, err
}

type measuredAuditor struct {
	auditor driver.Auditor
	audit   measuredVerb
}

func (s *measuredAuditor) Audit(ctx context.Context, e driver.AuditEntry) error {
	began := time.Now()
	err := s.auditor.Audit(ctx, e)
	s.audit.took(ctx, began, err)
	return err
}

func (s *measuredAuditor) AuditTrail(ctx context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) error {
	began := time.Now()
	err := s.auditor.AuditTrail(ctx, id, limit, yield)
	s.audit.took(ctx, began, err)
	return err
}
