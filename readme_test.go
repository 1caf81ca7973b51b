package semel_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

// The snippets of README.md, compiled and run. The test in internal/docs finds them here.

var errOutOfStock = errors.New("out of stock")

type cardProcessor struct{ seen []string }

func (p *cardProcessor) Charge(_ context.Context, key string) (string, error) {
	p.seen = append(p.seen, key)
	if len(p.seen) == 1 {
		return "", errOutOfStock
	}
	return "ch_1", nil
}

func accountOf(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

func TestReadmeGuardsAHandler(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	var effects, quotes ledger
	pay, quote := http.HandlerFunc(effects.pay), http.HandlerFunc(quotes.pay)

	guard, err := semel.New(memstore.New(), semel.ScopeFunc(accountOf), semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("POST /payments", guard.Wrap(pay))
	mux.Handle("POST /quotes", guard.Route(semel.Policy{OnLost: semel.Rerun, Retention: time.Hour}).Wrap(quote))

	for range 2 {
		for _, path := range []string{"/payments", "/quotes"} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
			r.Header.Set("X-Account", "acme")
			r.Header.Set("Idempotency-Key", "key-of"+strings.ReplaceAll(path, "/", "-"))
			if w := answer(mux, r); w.Code != http.StatusCreated {
				t.Errorf("POST %s: %d %s", path, w.Code, w.Body)
			}
		}
	}
	if effects.count() != 1 || quotes.count() != 1 {
		t.Errorf("%d payments and %d quotes, want one each", effects.count(), quotes.count())
	}
}

func TestField11_ReadmeHandlerHasASay(t *testing.T) {
	t.Parallel()
	processor := &cardProcessor{}
	guard, _ := newGuard(t, nil, semel.Policy{KeyOptional: true})
	h := guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := semel.FromContext(r.Context())
		chargeID, err := processor.Charge(r.Context(), op.Key("charge")) // the same key in every run
		if errors.Is(err, errOutOfStock) {
			op.Release() // nothing happened: the same key may try again
		}
		if err != nil {
			w.WriteHeader(http.StatusConflict)
			return
		}
		w.Header().Set("Location", "/charges/"+chargeID)
		w.WriteHeader(http.StatusCreated)
	}))
	if w := answer(h, post("key", "{}")); w.Code != http.StatusConflict {
		t.Errorf("first attempt: %d, want 409", w.Code)
	}
	if w := answer(h, post("key", "{}")); w.Code != http.StatusCreated {
		t.Errorf("second attempt: %d, want 201", w.Code)
	}
	if len(processor.seen) != 2 || processor.seen[0] != processor.seen[1] {
		t.Errorf("the processor saw the keys %q, want the same one twice", processor.seen)
	}
	// The same handler, asked without a key: each time another charge.
	for range 2 {
		if w := answer(h, post("", "{}")); w.Code != http.StatusCreated {
			t.Errorf("without a key: %d, want 201", w.Code)
		}
	}
	if len(processor.seen) != 4 || processor.seen[2] == processor.seen[3] || processor.seen[2] == processor.seen[0] {
		t.Errorf("the processor saw the keys %q, want another one for each request without a key", processor.seen)
	}
}

func TestField10_ReadmeDo(t *testing.T) {
	t.Parallel()
	type (
		Invoice struct{ Number int }
		Receipt struct{ ID string }
	)
	ctx := t.Context()
	guard, _ := newGuard(t, nil, semel.Policy{})
	invoice, sent := Invoice{Number: 2031}, 0
	send := func(context.Context, Invoice) (Receipt, error) {
		sent++
		return Receipt{ID: "r_1"}, nil
	}
	for range 2 {
		receipt, err := semel.Do(ctx, guard, semel.Key{Scope: "tenant-7", Operation: "send invoice", Value: "invoice-2031"}, semel.JSON(invoice),
			func(ctx context.Context) (Receipt, error) { return send(ctx, invoice) })
		if err != nil || receipt.ID != "r_1" {
			t.Errorf("Do returned %v, %v", receipt, err)
		}
	}
	if sent != 1 {
		t.Errorf("sent %d times, want once", sent)
	}

	key, header := semel.Key{Scope: "tenant-7", Operation: "send invoice", Value: "invoice-2031"}, http.Header{}
	sendIt := func(ctx context.Context) (Receipt, error) { return send(ctx, invoice) }
	var report semel.Report
	receipt, err := semel.Do(semel.WithReport(ctx, &report), guard, key, semel.JSON(invoice), sendIt)
	if report.Replayed {
		header.Set("idempotent-replayed", "true")
	}
	if receipt.ID != "r_1" || err != nil || header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("Do returned %v, %v, marked %v", receipt, err, header)
	}
}
