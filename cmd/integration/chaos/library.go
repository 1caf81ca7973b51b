package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// A business is a database in which effects are, together with the records.
type business interface {
	store() driver.Store
	// tx calls fn in a transaction that settles the operation too.
	tx(ctx context.Context, p payment, fn func(booking) error) error
	// apart writes an effect in no such transaction.
	apart(ctx context.Context, e effect) error
}

// A booking writes an effect in a transaction.
type booking func(effect) error

// serveLibrary is a service that has the library within, and its effects in the store's database.
func (a *actor) serveLibrary(ctx context.Context) error {
	open := a.openSQLiteBusiness
	if a.Storage.server() {
		open = a.openPostgresBusiness
	}
	b, err := open(ctx)
	if err != nil {
		return err
	}
	policy := semel.Policy{Lease: a.Lease, Wait: a.Lease / 4, MaxRun: time.Minute, OneCommit: a.Mode == OneCommit}
	under := b.store()
	if a.Mode == Tx {
		under = trappedStore{under, a.traps}
	}
	guard, err := semel.New(under, semel.SingleTenant, a.Mode.onLost(), semel.Options{Policy: policy, MaxKeys: -1, MaxAttempts: -1})
	if err != nil {
		return err
	}
	l, err := a.listen()
	if err != nil {
		return err
	}
	go sweep(ctx, b.store())
	mux := http.NewServeMux()
	mux.Handle("POST /payments", guard.Wrap(&till{actor: a, in: b}))
	announce(l)
	server := &http.Server{Handler: mux}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.drainTime())
	defer cancel()
	return errors.Join(server.Shutdown(draining), guard.Drain(draining))
}

// A till takes payments, each in a transaction.
type till struct {
	*actor
	in business
}

var (
	errRefused = errors.New("payment refused")
	errFailed  = errors.New("something failed")
)

func (t *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	p, request, ok := readPayment(w, r)
	if !ok {
		return
	}
	time.Sleep(p.Takes)
	e := newEffect(r.Header.Get("Idempotency-Key"), request, t.Front, began)
	op := semel.FromContext(r.Context())
	e.Operation, e.Attempt, e.Fence = op.ID(), op.Attempt(), op.Fence()
	if t.Flaw == effectApart {
		t.in.apart(r.Context(), e) //nolint:errcheck // then there is no effect
	}
	err := t.in.tx(r.Context(), p, func(book booking) error {
		if t.Flaw != effectApart {
			if err := book(e); err != nil {
				return err
			}
		}
		t.traps.pass(InTransaction)
		switch {
		case p.Kind == refused:
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, refusalBody) //nolint:errcheck // it is buffered
			return errRefused
		case p.Kind == failing && rand.IntN(2) == 0:
			return errFailed
		}
		t.answer(w, e, p)
		return nil
	})
	if err == nil {
		t.traps.pass(AfterCommit)
		return
	}
	if !errors.Is(err, errRefused) {
		http.Error(w, err.Error(), http.StatusInternalServerError) // of no effect if the answer was given already
	}
}
