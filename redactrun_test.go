package semel_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func contentDigestOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func TestR61_R52_AStoredRequestLacksTheRedactedFields(t *testing.T) {
	t.Parallel()
	const sent = `{ "amount": 5, "card": {"number": "4", "code": "the-code"} }`
	for _, c := range []struct {
		name, body, want string
		header           []string // with which it is run again
	}{
		{"without them", sent, `{"amount":5,"card":{"number":"4"}}`, []string{"Accept", "Content-Type", "Idempotency-Key", "X-Correlation-Id"}},
		{
			"as it was sent where it has none", `{ "amount": 5 }`, `{ "amount": 5 }`,
			[]string{"Accept", "Content-Digest", "Content-Type", "Idempotency-Key", "Repr-Digest", "X-Correlation-Id"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				p := finishing()
				p.Redact, p.SealHeaders = []string{"/card/code"}, []string{"Repr-Digest"}
				_, end := abandon(t, mem, p, post("k", c.body, "Accept", "a", "Content-Digest", contentDigestOf(c.body), "Repr-Digest", "sha-256=:x:"))
				g, seen := newFinishing(t, mem, p)
				var paid ledger
				var header http.Header
				var body string
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					text, _ := io.ReadAll(r.Body)
					header, body = r.Header, string(text)
					if r.ContentLength != int64(len(text)) {
						t.Errorf("Content-Length is %d, want %d", r.ContentLength, len(text))
					}
					paid.pay(w, r)
				}))
				stop := finish(t, g, h, semel.CompleterOptions{})
				time.Sleep(time.Minute)
				stop()
				checkEffects(t, &paid, 1)
				if got := slices.Sorted(maps.Keys(header)); body != c.want || !slices.Equal(got, c.header) {
					t.Errorf("run again with body %s, headers %q; want %s, %q; %v", body, got, c.want, c.header, seen.failures())
				}
				// The request is told by what was sent, not by what was stored.
				wantAnswer(t, answer(h, post("k", c.body)), http.StatusCreated, "payment 1", true)
				wantProblem(t, answer(h, post("k", strings.Replace(c.body, "5", "6", 1))), http.StatusUnprocessableEntity, refusal.KeyReused)
				end()
			})
		})
	}
}

// What can't be taken apart is not stored, and not run either: the promise that it will be finished could not be kept.
func TestR61_ARequestThatCantBeRedactedIsRefused(t *testing.T) {
	t.Parallel()
	p := inRealTime(async())
	p.Redact = []string{"/card/code"}
	store := memstore.New()
	g, _, _ := asyncGuard(t, store, p)
	var paid ledger
	h := g.Wrap(http.HandlerFunc(paid.pay))
	w := answer(h, post("k", `{"card":`, "Prefer", asyncPreferred))
	wantProblem(t, w, http.StatusBadRequest, refusal.RequestUnreadable)
	if text := w.Body.String(); !strings.Contains(text, `"retryable":false`) || !strings.Contains(text, "not valid JSON") || store.Len() != 0 {
		t.Errorf("told %s, %d records", text, store.Len())
	}
	checkEffects(t, &paid, 0)
	wantAnswer(t, answer(h, post("k", `{"card":`)), http.StatusCreated, "payment 1", false) // nothing is stored of it
}

func TestR61_NothingRedactedIsInTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		p := finishing()
		p.Redact = []string{"/code"}
		_, end := abandon(t, mem, p, post("a", `{"code":"`+strings.Repeat("x", 5000)+`"}`), post("b", `{}`))
		with, without := loaded(t, mem, "a").Sealed, loaded(t, mem, "b").Sealed
		if len(with) == 0 || len(with) != len(without) {
			t.Errorf("stored %d bytes of the one, %d of the other", len(with), len(without))
		}
		end()
	})
}

// TestField18_EachStoredRequestHasATokenOfItsOwn: what a request is encrypted under is derived from record and token.
// The same token twice would be the same key twice.
func TestField18_EachStoredRequestHasATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("a", `{}`), post("b", `{}`))
		tokens := map[driver.Token]bool{{}: true}
		for _, key := range []string{"a", "b"} {
			sealed := loaded(t, mem, key).Sealed
			at := 2 + int(sealed[1]) // the envelope's kind, and the encryption key's id with its length
			token := driver.Token(sealed[at : at+len(driver.Token{})])
			if tokens[token] {
				t.Errorf("the request of %s is stored under the token %v, which is zero or was used before", key, token)
			}
			tokens[token] = true
		}
		end()
	})
}

func TestRedactNeedsAStoredRequest(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]semel.Policy{
		"policy: Redact without RespondAsync or Complete": {OnLost: semel.Rerun, Redact: []string{"/a"}},
		`policy: redacted field: JSON Pointer "a"`: {
			OnLost: semel.Rerun, Complete: true, Redact: []string{"a"},
		},
	} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q in it", err, want)
		}
	}
}
