package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/identity"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
)

func TestADeskNeedsAStoreThatCanDecideListAndAudit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		store driver.Store
		says  []string
	}{
		{nil, []string{"nil"}},
		{struct{ driver.Store }{memstore.New()}, []string{"Seizer", "Lister", "Auditor"}},
		{memstore.New(), []string{"*memstore.Store", "an audit trail"}},
	} {
		_, err := admin.New(c.store, admin.Options{})
		if err == nil {
			t.Errorf("%T is accepted", c.store)
			continue
		}
		for _, want := range c.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%T: %v does not say %q", c.store, err, want)
			}
		}
	}
}

func TestR87_ShowTellsWhatWasDecidedAlsoAfterForgetting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		found("unknown").prepare(t, s)
		if _, err := desk.Release(t.Context(), operation, decision); err != nil {
			t.Fatal(err)
		}
		if _, err := desk.Forget(t.Context(), operation, decision); err != nil {
			t.Fatal(err)
		}
		rec, trail, err := desk.Show(t.Context(), operation)
		if err != nil || rec.State != driver.Absent {
			t.Errorf("it is %v, %v", rec.State, err)
		}
		var got []string
		for _, e := range trail {
			got = append(got, e.Action+" "+e.Result)
		}
		if want := "[forget done forget asked release done release asked]"; fmt.Sprint(got) != want {
			t.Errorf("the trail is %v, want %s", got, want)
		}
		if _, trail, err = desk.Show(t.Context(), driver.ID{1}); err != nil || len(trail) > 0 {
			t.Errorf("another operation's trail: %v, %v", trail, err)
		}
	})
}

func TestAStoreThatFailsIsNotAnAbsentOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		s.before = func(string) error { return driver.ErrUnreadable }
		if _, _, err := desk.Show(t.Context(), operation); !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("show: %v", err)
		}
		if asked := s.log(); len(asked) != 1 {
			t.Errorf("an unreadable record was asked for as %q", asked)
		}
		for action, do := range actions {
			if _, err := do(t.Context(), desk, decision); !errors.Is(err, driver.ErrUnreadable) {
				t.Errorf("%s: %v", action, err)
			}
		}
	})
}

// the store's check value is no operation.
func TestR15_TheStoresOwnRecordsAreNeitherListedNorDecidedAbout(t *testing.T) {
	t.Parallel()
	desk, s := newDesk(t)
	if err := identity.Check(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	var own driver.ID
	if err := s.List(t.Context(), driver.Query{}, func(id driver.ID, _ driver.Record) bool { own = id; return true }); err != nil {
		t.Fatal(err)
	}
	s.claim(t, semel.Hold)
	for _, limit := range []int{0, 1, 2} {
		var listed []driver.ID
		err := desk.List(t.Context(), driver.Query{Limit: limit}, func(id driver.ID, _ driver.Record) bool {
			listed = append(listed, id)
			return true
		})
		if err != nil || len(listed) != 1 || listed[0] != operation {
			t.Errorf("limit %d: listed %v, %v", limit, listed, err)
		}
	}
	if rec, _, err := desk.Show(t.Context(), own); err != nil || rec.State != driver.Absent {
		t.Errorf("shown as %v, %v", rec.State, err)
	}
	if _, err := desk.Forget(t.Context(), own, forced); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("forget: %v", err)
	}
	if err := identity.Check(t.Context(), s, []byte("0123456789abcdef")); !errors.Is(err, identity.ErrOtherSecret) {
		t.Errorf("the check value is gone: %v", err)
	}
}

func TestListStopsAtItsLimitAndWhenToldTo(t *testing.T) {
	t.Parallel()
	desk, s := newDesk(t)
	for i := range 10 {
		_, _, err := s.Claim(t.Context(), semel.Identify(nil, semel.KindHTTP, "acme", fmt.Sprint(i)), driver.Claim{Token: driver.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ limit, stopAfter, want int }{{0, 100, 10}, {3, 100, 3}, {0, 4, 4}, {5, 2, 2}} {
		n := 0
		err := desk.List(t.Context(), driver.Query{Limit: c.limit}, func(driver.ID, driver.Record) bool { n++; return n < c.stopAfter })
		if err != nil || n != c.want {
			t.Errorf("limit %d, told to stop after %d: %d listed, %v", c.limit, c.stopAfter, n, err)
		}
	}
	scope := semel.Identify(nil, semel.KindHTTP, "other", "").Scope()
	if err := desk.List(t.Context(), driver.Query{Scope: &scope}, func(driver.ID, driver.Record) bool { t.Error("listed of another scope"); return true }); err != nil {
		t.Error(err)
	}
}

// The store can't compare names that are sealed: the desk does, and counts only what it gives.
func TestAttack08_ADeskFindsBySealedNames(t *testing.T) {
	t.Parallel()
	s := &store{Store: memstore.New()}
	keys, err := keyring.New(keyring.Key{ID: "a", Key: bytes.Repeat([]byte{1}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	g, err := semel.New(s, semel.SingleTenant, semel.Hold, semel.Options{Encryption: keys})
	if err != nil {
		t.Fatal(err)
	}
	h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for i := range 6 {
		r := httptest.NewRequest(http.MethodPost, fmt.Sprint("/users/", i%2), nil)
		r.Header.Set("Idempotency-Key", fmt.Sprint("k", i))
		r.Header.Set("X-Correlation-Id", fmt.Sprint("trace-", i))
		func() {
			defer func() { recover() }() //nolint:errcheck // the handler's own
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	desk, err := admin.New(s, admin.Options{Encryption: keys})
	if err != nil {
		t.Fatal(err)
	}
	var last driver.ID
	for _, c := range []struct {
		q    driver.Query
		want int
	}{
		{driver.Query{}, 6},
		{driver.Query{Operation: "POST /users/1"}, 3},
		{driver.Query{Operation: "POST /users/1", Limit: 2}, 2},
		{driver.Query{Operation: "POST /users/2"}, 0},
		{driver.Query{Correlation: "trace-3"}, 1},
		{driver.Query{Correlation: "trace-3", Operation: "POST /users/0"}, 0},
	} {
		n := 0
		err := desk.List(t.Context(), c.q, func(id driver.ID, rec driver.Record) bool {
			if n++; !c.q.Matches(id, &rec) || !strings.HasPrefix(rec.Operation, "POST /users/") {
				t.Errorf("%+v: found %q, %q", c.q, rec.Operation, rec.Correlation)
			}
			last = id
			return true
		})
		if n != c.want || err != nil {
			t.Errorf("%+v: %d found, want %d, %v", c.q, n, c.want, err)
		}
	}
	by := decision
	by.Confirm = func(_ context.Context, rec driver.Record) error {
		if rec.Correlation != "trace-3" {
			t.Errorf("asked about %q", rec.Correlation)
		}
		return nil
	}
	change, err := desk.Release(t.Context(), last, by)
	if err != nil || change.Before.Operation != "POST /users/1" || change.After.Operation != "POST /users/1" {
		t.Errorf("released %q, %q, %v", change.Before.Operation, change.After.Operation, err)
	}
	_, trail, err := desk.Show(t.Context(), last)
	if err != nil || len(trail) != 2 || trail[0].Operation != "POST /users/1" || !strings.HasPrefix(s.trail[0].Operation, driver.SealedName) {
		t.Errorf("the trail is %+v, stored as %+v, %v", trail, s.trail, err)
	}
}
