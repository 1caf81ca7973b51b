package gateway

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func TestAttack08_AnAnswerWrittenInTheClearIsNotReplayed(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "session=forged")
		created(w, r)
	})
	plain := start(t, u.URL, func(c *Config) { c.Store = store })
	post(t, plain.url, "k").wants(t, 201, "")
	for _, p := range []Plain{PlainByKeys, PlainRefused} {
		g := start(t, u.URL, func(c *Config) { c.Store, c.Encryption, c.Plain = store, newKeyring(t), p })
		a := post(t, g.url, "k")
		a.wants(t, 409, refusal.ReplayUnavailable)
		if a.header.Get("Location") != "" || a.header.Get("Set-Cookie") != "" || a.header.Get("Idempotency-Retryable") == "true" {
			t.Errorf("the answer has %v", a.header)
		}
		wantMetrics(t, g, `idempotency_events_total{event="unreadable"} 1`, `idempotency_events_total{event="plain_stored"} 0`)
	}
	changing := start(t, u.URL, func(c *Config) { c.Store, c.Encryption, c.Plain = store, newKeyring(t), PlainAllowed })
	if a := post(t, changing.url, "k"); a.status != 201 || !a.replayed() {
		t.Errorf("during the change-over: %d, replayed %t", a.status, a.replayed())
	}
	wantMetrics(t, changing, `idempotency_events_total{event="unreadable"} 0`, `idempotency_events_total{event="plain_stored"} 1`)
	if !strings.Contains(changing.log.String(), "answers that are not encrypted are replayed") {
		t.Error("the change-over is not warned of")
	}
	if n := len(u.requests()); n != 1 {
		t.Errorf("executed %d times", n)
	}
}

// A swapping store gives another answer with each record than that which was settled, as one into which somebody
// writes.
type swapping struct {
	*memstore.Store
	answer atomic.Pointer[driver.Response]
}

func (s *swapping) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	rec, owned, err := s.Store.Claim(ctx, id, c)
	if other := s.answer.Load(); other != nil && rec.State == driver.Done {
		rec.Response = other
	}
	return rec, owned, err
}

func TestAttack08_AnEncryptedAnswerOfAnotherOperationIsNotReplayed(t *testing.T) {
	t.Parallel()
	s := &swapping{Store: memstore.New()}
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.Store, c.Encryption = s, newKeyring(t) })
	post(t, g.url, "one").wants(t, 201, "")
	var stored *driver.Response
	err := s.List(t.Context(), driver.Query{}, func(_ driver.ID, rec driver.Record) bool {
		stored = rec.Response
		return stored == nil
	})
	if err != nil || stored == nil {
		t.Fatalf("the answer is %v, %v", stored, err)
	}
	post(t, g.url, "two").wants(t, 201, "")
	s.answer.Store(stored)
	post(t, g.url, "two").wants(t, 409, refusal.ReplayUnavailable)
	if a := post(t, g.url, "one"); a.status != 201 || !a.replayed() {
		t.Errorf("its own answer: %d, replayed %t", a.status, a.replayed())
	}
}

func TestAttack08_RequiredEncryptionNeedsKeys(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"required", "allow-plain"} {
		_, err := load(t, "upstream: http://127.0.0.1:9000\nscope: single\nencryption: "+mode+"\n")
		if err == nil || !strings.Contains(err.Error(), "encryption: there are no keys") {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// What an operation is called says where the upstream is asked about it: a name that is not the guard's own asks
// nobody.
func TestAttack08_NobodyIsAskedAboutANameThatIsNotSealed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		before, after *keyring.Ring
		plain         Plain
		asked         bool
	}{
		{"sealed", newKeyring(t), newKeyring(t), PlainRefused, true},
		{"written in the clear", nil, newKeyring(t), PlainRefused, false},
		{"change-over", nil, newKeyring(t), PlainAllowed, true},
		{"the keys are gone", newKeyring(t), nil, PlainByKeys, false},
	} {
		store := memstore.New()
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				hangUp(w, r)
				return
			}
			says(w, "done", http.StatusCreated, "paid")
		})
		first := start(t, u.URL, func(cfg *Config) { cfg.Store, cfg.Encryption = store, c.before })
		post(t, first.url, "k").wants(t, 409, refusal.OutcomeUnknown)
		then := start(t, u.URL, reconciles, func(cfg *Config) {
			cfg.Store, cfg.Encryption, cfg.Plain = store, c.after, c.plain
			cfg.Default.ReplayTo = ReplayToAnyone
		})
		if !c.asked {
			eventually(t, c.name+": a warning", func() bool { return strings.Contains(then.log.String(), "names can't be read") })
			if n := len(u.requests()); n != 1 {
				t.Errorf("%s: %d requests to the upstream", c.name, n)
			}
			post(t, then.url, "k").wants(t, 409, refusal.OutcomeUnknown)
			continue
		}
		eventually(t, c.name+": an answer", func() bool { a := post(t, then.url, "k"); return a.status == 201 && a.replayed() && a.body == "paid" })
	}
}
