package admin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/memstore"
)

func TestADeskNeedsAStoreThatCanDecideListAndAudit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		store semel.Store
		says  []string
	}{
		{nil, []string{"nil"}},
		{struct{ semel.Store }{memstore.New()}, []string{"Seizer", "Lister", "Auditor"}},
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
		if err != nil || rec.State != semel.Absent {
			t.Errorf("it is %v, %v", rec.State, err)
		}
		var got []string
		for _, e := range trail {
			got = append(got, e.Action+" "+e.Result)
		}
		if want := "[forget done forget asked release done release asked]"; fmt.Sprint(got) != want {
			t.Errorf("the trail is %v, want %s", got, want)
		}
		if _, trail, err = desk.Show(t.Context(), semel.ID{1}); err != nil || len(trail) > 0 {
			t.Errorf("another operation's trail: %v, %v", trail, err)
		}
	})
}

func TestAStoreThatFailsIsNotAnAbsentOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		s.before = func(string) error { return semel.ErrUnreadable }
		if _, _, err := desk.Show(t.Context(), operation); !errors.Is(err, semel.ErrUnreadable) {
			t.Errorf("show: %v", err)
		}
		if asked := s.log(); len(asked) != 1 {
			t.Errorf("an unreadable record was asked for as %q", asked)
		}
		for action, do := range actions {
			if _, err := do(t.Context(), desk, decision); !errors.Is(err, semel.ErrUnreadable) {
				t.Errorf("%s: %v", action, err)
			}
		}
	})
}

// the store's check value is no operation.
func TestR15_TheStoresOwnRecordsAreNeitherListedNorDecidedAbout(t *testing.T) {
	t.Parallel()
	desk, s := newDesk(t)
	if err := semel.CheckIdentity(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	var own semel.ID
	if err := s.List(t.Context(), semel.Query{}, func(id semel.ID, _ semel.Record) bool { own = id; return true }); err != nil {
		t.Fatal(err)
	}
	s.claim(t, semel.Hold)
	for _, limit := range []int{0, 1, 2} {
		var listed []semel.ID
		err := desk.List(t.Context(), semel.Query{Limit: limit}, func(id semel.ID, _ semel.Record) bool {
			listed = append(listed, id)
			return true
		})
		if err != nil || len(listed) != 1 || listed[0] != operation {
			t.Errorf("limit %d: listed %v, %v", limit, listed, err)
		}
	}
	if rec, _, err := desk.Show(t.Context(), own); err != nil || rec.State != semel.Absent {
		t.Errorf("shown as %v, %v", rec.State, err)
	}
	if _, err := desk.Forget(t.Context(), own, forced); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("forget: %v", err)
	}
	if err := semel.CheckIdentity(t.Context(), s, []byte("0123456789abcdef")); !errors.Is(err, semel.ErrOtherSecret) {
		t.Errorf("the check value is gone: %v", err)
	}
}

func TestListStopsAtItsLimitAndWhenToldTo(t *testing.T) {
	t.Parallel()
	desk, s := newDesk(t)
	for i := range 10 {
		_, _, err := s.Claim(t.Context(), semel.Identify(nil, semel.KindHTTP, "acme", fmt.Sprint(i)), semel.Claim{Token: semel.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ limit, stopAfter, want int }{{0, 100, 10}, {3, 100, 3}, {0, 4, 4}, {5, 2, 2}} {
		n := 0
		err := desk.List(t.Context(), semel.Query{Limit: c.limit}, func(semel.ID, semel.Record) bool { n++; return n < c.stopAfter })
		if err != nil || n != c.want {
			t.Errorf("limit %d, told to stop after %d: %d listed, %v", c.limit, c.stopAfter, n, err)
		}
	}
	scope := semel.Identify(nil, semel.KindHTTP, "other", "").Scope()
	if err := desk.List(t.Context(), semel.Query{Scope: &scope}, func(semel.ID, semel.Record) bool { t.Error("listed of another scope"); return true }); err != nil {
		t.Error(err)
	}
}
