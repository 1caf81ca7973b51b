package admin_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// A store is a memory store that keeps an audit trail, notes what it is asked for, and fails as a test says.
type store struct {
	*memstore.Store

	mu     sync.Mutex
	asked  []string // verbs, in order; of an audit, its result too
	trail  []driver.AuditEntry
	before func(verb string) error // an error keeps the verb from being executed
	after  func(verb string) error // an error is a lost reply
}

func (s *store) do(verb string, execute func() error) error {
	s.mu.Lock()
	s.asked = append(s.asked, verb)
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(verb); err != nil {
			return err
		}
	}
	if err := execute(); err != nil {
		return err
	}
	if after != nil {
		return after(verb)
	}
	return nil
}

func (s *store) Load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	err = s.do("load", func() (err error) { rec, err = s.Store.Load(ctx, id); return err })
	return rec, err
}

func (s *store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	err = s.do("settle", func() (err error) { rec, owned, err = s.Store.Settle(ctx, id, by, o); return err })
	return rec, owned, err
}

func (s *store) Seize(ctx context.Context, id driver.ID, t driver.Token) (rec driver.Record, err error) {
	err = s.do("seize", func() (err error) { rec, err = s.Store.Seize(ctx, id, t); return err })
	return rec, err
}

func (s *store) Forget(ctx context.Context, id driver.ID, by driver.Owner) (forgotten bool, err error) {
	err = s.do("forget", func() (err error) { forgotten, err = s.Store.Forget(ctx, id, by); return err })
	return forgotten, err
}

func (s *store) Audit(ctx context.Context, e driver.AuditEntry) error {
	return s.do("audit "+e.Result, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		e.At = driver.TimeOf(time.Now())
		s.trail = append(s.trail, e)
		return nil
	})
}

func (s *store) AuditTrail(_ context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(s.trail) {
		if id != nil && e.ID != *id {
			continue
		}
		if limit--; !yield(e) || limit == 0 {
			break
		}
	}
	return nil
}

// log returns what the store was asked for since the last call.
func (s *store) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// results returns the results of the audit trail, in order.
func (s *store) results() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.trail {
		list = append(list, e.Result)
	}
	return list
}

func newDesk(t testing.TB) (*admin.Desk, *store) {
	t.Helper()
	s := &store{Store: memstore.New()}
	d, err := admin.New(s, admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d, s
}

const lease = 10 * time.Second

var (
	operation = semel.Identify(nil, semel.KindHTTP, "acme", "k1")
	decision  = admin.Decision{Actor: "ann", Reason: "the bank says so"}
	forced    = admin.Decision{Actor: "ann", Reason: "the bank says so", Force: true}
	answer    = &driver.Response{Status: 201, Body: []byte("paid")}
)

// claim starts a run of the operation.
func (s *store) claim(t testing.TB, onLost semel.LostPolicy) driver.Owner {
	t.Helper()
	rec, owned, err := s.Claim(t.Context(), operation, driver.Claim{
		Fingerprint: driver.Fingerprint{Raw: [16]byte{1}}, Token: driver.NewToken(), Lease: lease, Retention: time.Hour,
		OnLost: onLost, Operation: "POST /payments",
	})
	if err != nil || !owned {
		t.Fatalf("claim: owned %v, %v", owned, err)
	}
	return rec.Owner()
}

// A situation is a way in which an operator may find the operation.
type situation struct {
	name    string
	prepare func(testing.TB, *store)
}

func found(name string) situation {
	i := slices.IndexFunc(situations, func(s situation) bool { return s.name == name })
	return situations[i]
}

var situations = []situation{
	{"absent", func(testing.TB, *store) {}},
	{"running", func(t testing.TB, s *store) { s.claim(t, semel.Hold) }},
	{"running, begun", func(t testing.TB, s *store) { s.begin(t, s.claim(t, semel.Hold)) }},
	{"lapsed under hold", func(t testing.TB, s *store) { s.claim(t, semel.Hold); time.Sleep(lease) }},
	{"lapsed under rerun", func(t testing.TB, s *store) { s.claim(t, semel.Rerun); time.Sleep(lease) }},
	{"lapsed, begun", func(t testing.TB, s *store) { s.begin(t, s.claim(t, semel.Hold)); time.Sleep(lease) }},
	{"unknown", func(t testing.TB, s *store) { s.end(t, s.claim(t, semel.Hold), driver.Unknown) }},
	{"seized", func(t testing.TB, s *store) {
		s.claim(t, semel.Hold)
		if _, err := s.Store.Seize(t.Context(), operation, driver.NewToken()); err != nil {
			t.Fatal(err)
		}
	}},
	{"free", func(t testing.TB, s *store) { s.end(t, s.claim(t, semel.Hold), driver.Free) }},
	{"free, maybe", func(t testing.TB, s *store) { s.end(t, s.claim(t, semel.Rerun), driver.Free) }},
	{"done", func(t testing.TB, s *store) { s.end(t, s.claim(t, semel.Hold), driver.Done) }},
	{"expired", func(t testing.TB, s *store) { s.end(t, s.claim(t, semel.Hold), driver.Done); time.Sleep(time.Hour) }},
}

func (s *store) begin(t testing.TB, by driver.Owner) {
	t.Helper()
	if owned, err := s.Extend(t.Context(), operation, by, driver.Extension{Lease: lease, Begun: true}); err != nil || !owned {
		t.Fatalf("begin: owned %v, %v", owned, err)
	}
}

func (s *store) end(t testing.TB, by driver.Owner, state driver.State) {
	t.Helper()
	o := driver.Outcome{State: state}
	if state == driver.Done {
		o.Response = &driver.Response{Status: 200, Body: []byte("first")}
	}
	if _, owned, err := s.Store.Settle(t.Context(), operation, by, o); err != nil || !owned {
		t.Fatalf("end: owned %v, %v", owned, err)
	}
}

// record returns the operation's record as text, without the time at which it was read.
func (s *store) record(t testing.TB) string {
	t.Helper()
	rec, err := s.Store.Load(context.Background(), operation)
	if err != nil {
		t.Fatal(err)
	}
	answer := rec.Response
	rec.Now, rec.Response = 0, nil
	return fmt.Sprintf("%+v, answered with %+v", rec, answer)
}

func (s *store) state(t testing.TB) driver.State {
	t.Helper()
	rec, err := s.Store.Load(context.Background(), operation)
	if err != nil {
		t.Fatal(err)
	}
	return rec.State
}

// actions are the decisions of a desk by name.
var actions = map[string]func(context.Context, *admin.Desk, admin.Decision) (admin.Change, error){
	"complete": func(ctx context.Context, d *admin.Desk, by admin.Decision) (admin.Change, error) {
		return d.Complete(ctx, operation, answer, by)
	},
	"release": func(ctx context.Context, d *admin.Desk, by admin.Decision) (admin.Change, error) {
		return d.Release(ctx, operation, by)
	},
	"forget": func(ctx context.Context, d *admin.Desk, by admin.Decision) (admin.Change, error) {
		return d.Forget(ctx, operation, by)
	},
}
