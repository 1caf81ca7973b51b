package semel_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
)

func TestAttack08_R61_ASealedNameIsBoundToItsRecordAndField(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	first, second := encryptionKey("2026", 1), encryptionKey("2027", 2)
	old := keyringOf(t, first)
	g, _ := newGuardWith(t, store, semel.Options{Encryption: old})
	answer(g.Wrap(say("paid")), post("k", `{}`, "X-Correlation-Id", "trace-1"))
	id := keyed("k")
	sealed := recordOf(t, store, id)
	for _, name := range []string{sealed.Operation, sealed.Correlation} {
		if !strings.HasPrefix(name, driver.SealedName) || strings.Contains(name, "payments") || strings.Contains(name, "trace") {
			t.Errorf("stored as %q", name)
		}
	}
	open := func(k *keyring.Ring, id driver.ID, rec driver.Record) (string, error) {
		err := k.OpenNames(id, &rec)
		return rec.Operation + ", " + rec.Correlation, err
	}
	stored := sealed.Operation + ", " + sealed.Correlation
	swapped, changed := sealed, sealed
	swapped.Operation, swapped.Correlation = sealed.Correlation, sealed.Operation
	changed.Operation = sealed.Operation[:60] + "AA" + sealed.Operation[62:]
	plain := driver.Record{Operation: "POST /forged", Correlation: "forged"}
	for name, c := range map[string]struct {
		k    *keyring.Ring
		id   driver.ID
		rec  driver.Record
		want string // "" for an error, and the operation as it was stored
	}{
		"its own":                   {old, id, sealed, "POST /payments, trace-1"},
		"rotated":                   {keyringOf(t, second, first), id, sealed, "POST /payments, trace-1"},
		"by a change-over":          {old.AllowPlain(), id, sealed, "POST /payments, trace-1"},
		"plain, no keyring":         {nil, id, plain, "POST /forged, forged"},
		"plain, in a change-over":   {old.AllowPlain(), id, plain, "POST /forged, forged"},
		"none":                      {old, id, driver.Record{}, ", "},
		"plain":                     {old, id, plain, ""},
		"no keyring":                {nil, id, sealed, ""},
		"a key that is gone":        {keyringOf(t, second), id, sealed, ""},
		"another record":            {old, keyed("other"), sealed, ""},
		"another field":             {old, id, swapped, ""},
		"changed":                   {old, id, changed, ""},
		"no envelope":               {old.AllowPlain(), id, driver.Record{Operation: driver.SealedName + "!"}, ""},
		"an envelope of plain text": {old.AllowPlain(), id, driver.Record{Operation: driver.SealedName + "AFBPU1Q"}, ""},
	} {
		got, err := open(c.k, c.id, c.rec)
		if want := c.want; want != "" && (got != want || err != nil) {
			t.Errorf("%s: opened as %q, %v", name, got, err)
		} else if want == "" && (!strings.HasPrefix(got, c.rec.Operation) || !errors.Is(err, driver.ErrUnreadable)) {
			t.Errorf("%s: opened as %q, %v", name, got, err)
		}
	}
	if again := recordOf(t, store, id); again.Operation+", "+again.Correlation != stored {
		t.Error("what is stored has changed")
	}
}

// A lost run of Do, or in one commit, has a name too.
func TestAttack08_TheNamesOfCallsAreSealed(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	g, _ := newGuardWith(t, s, semel.Options{Encryption: keyringOf(t, encryptionKey("a", 1))})
	if _, err := semel.Do(t.Context(), g, semel.Key{Scope: "alice", Operation: "pay ann", Value: "do"}, semel.Bytes("x"), func(context.Context) (string, error) { return "", nil }); err != nil {
		t.Error(err)
	}
	one := g.Route(semel.Policy{OneCommit: true, Operation: "pay ann at once"})
	answer(one.Wrap(s.working(paying, nil)), post("tx", `{}`))
	for rec := range records(t, s) {
		if !strings.HasPrefix(rec.Operation, driver.SealedName) {
			t.Errorf("stored as %q", rec.Operation)
		}
	}
}

// Nobody is asked about an operation under a name that a guard has not stored. Reconcile opens what one has.
func TestAttack08_NobodyIsAskedAboutAForgedName(t *testing.T) {
	t.Parallel()
	required := keyringOf(t, encryptionKey("a", 1))
	for _, c := range []struct {
		stored, read *keyring.Ring
		asked, told  bool // told that it is plain
	}{
		{nil, required, false, false},
		{nil, required.AllowPlain(), true, true},
		{nil, nil, true, false},
		{required, required, true, false},
		{required, nil, false, false},
		{required.AllowPlain(), required, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &audited{seizable: newSeizable()}
			before, _ := newGuardWith(t, store, semel.Options{Encryption: c.stored})
			lost(t, before)
			g, seen := newGuardWith(t, store, semel.Options{Encryption: c.read})
			was := recordOf(t, store, paymentID)
			var asked semel.Inquiry
			reads, err := g.Reconcile(t.Context(), paymentID, func(_ context.Context, i semel.Inquiry) (semel.Finding, error) {
				asked = i
				return never, nil
			})
			if !c.asked {
				if reads != driver.ReadsUnknown || !errors.Is(err, driver.ErrUnreadable) || seen.count(event.Unreadable) != 1 {
					t.Errorf("it reads as %v, %v; told %d times", reads, err, seen.count(event.Unreadable))
				}
				still(t, store, was)
				return
			}
			if err != nil || asked.Operation != "POST /payments" || len(asked.Correlation) != 32 || (seen.count(event.PlainStored) == 1) != c.told {
				t.Errorf("asked about %+v, %v; told %d times", asked, err, seen.count(event.PlainStored))
			}
			for _, e := range store.trail {
				if e.Operation != was.Operation {
					t.Errorf("the trail says %q, the record %q", e.Operation, was.Operation)
				}
			}
		})
	}
}

// What is finished without its client is the stored request: a name that is not its own is told to nobody, and keeps
// nothing from its end.
func TestAttack08_ACompleterTellsNoForgedName(t *testing.T) {
	t.Parallel()
	for _, forged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New()
			_, end := abandon(t, mem, finishing(), post("k", `{}`))
			g, seen := newFinishing(t, &renaming{mem, forged}, finishing())
			fails := true
			h := g.Wrap(say("finished"))
			stop := finish(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if fails {
					fails = false
					return // no guard takes it: a failure is told
				}
				h.ServeHTTP(w, r)
			}), semel.CompleterOptions{})
			time.Sleep(time.Hour)
			stop()
			wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "finished", true)
			want := "POST /payments"
			if forged {
				want = ""
			}
			var told []string
			for _, e := range seen.all() {
				if e.Kind == event.CompletionFailed {
					told = append(told, e.Operation)
				}
			}
			if !slices.Equal(told, []string{want}) || (seen.count(event.Unreadable) > 0) != forged {
				t.Errorf("forged %t: told of %q, %d unreadable", forged, told, seen.count(event.Unreadable))
			}
			end()
		})
	}
}

// A renaming store gives records another name, as one into which somebody writes.
type renaming struct {
	*memstore.Store
	forged bool
}

func (s *renaming) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, err := s.Store.Load(ctx, id)
	if s.forged && rec.State != driver.Absent && !id.Reserved() {
		rec.Operation = "POST /forged"
	}
	return rec, err
}
