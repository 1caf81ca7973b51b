package semel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// transactor is a memory store with transactions, to try what the guard makes of them: what one did is kept until its
// commit, and one at a time is under way, as in a database with one writer. Functions that are set decide how a call
// ends; that of commit may execute it or not. What they do stands in no relation to a real database: that is for the
// tests of real stores.
type transactor struct {
	driver.Store
	t    testing.TB
	turn chan struct{} // holds a token unless a transaction is under way

	begin  func(context.Context) error
	claim  func() error
	mark   func(context.Context) error
	undo   func(context.Context) error
	settle func(driver.Outcome) (refused bool, err error)
	commit func(execute func() error) error
	asked  func(context.Context, driver.Outcome) error // Settle of the store, not of a transaction
	extend func(execute func() (bool, error)) (bool, error)
	load   func() error

	mu        sync.Mutex // each verb, and the whole of a commit, is one step
	effects   []string   // that were committed
	begun     int
	ended     int
	committed int
	marks     int
}

func newTransactor(t testing.TB) *transactor { return transactions(t, memstore.New()) }

// transactions gives a store transactions.
func transactions(t testing.TB, store driver.Store) *transactor {
	s := &transactor{Store: store, t: t, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

func (s *transactor) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Claim(ctx, id, c)
}

func (s *transactor) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if s.load != nil {
		if err := s.load(); err != nil {
			return driver.Record{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Load(ctx, id)
}

func (s *transactor) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if s.asked != nil {
		if err := s.asked(ctx, o); err != nil {
			return driver.Record{}, false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Settle(ctx, id, by, o)
}

func (s *transactor) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	execute := func() (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.Store.Extend(ctx, id, by, x)
	}
	s.mu.Lock()
	extend := s.extend
	s.mu.Unlock()
	if extend != nil {
		return extend(execute)
	}
	return execute()
}

// extends says what becomes of renewals from now on.
func (s *transactor) extends(how func(execute func() (bool, error)) (bool, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extend = how
}

func (s *transactor) Begin(ctx context.Context) (driver.Tx, error) {
	if s.begin != nil {
		if err := s.begin(ctx); err != nil {
			return nil, err
		}
	}
	return s.start(ctx)
}

func (s *transactor) start(ctx context.Context) (*doubleTx, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	return &doubleTx{s: s}, nil
}

func (s *transactor) BeginClaim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Tx, driver.Record, bool, error) {
	if s.begin != nil {
		if err := s.begin(ctx); err != nil {
			return nil, driver.Record{}, false, err
		}
	}
	rec, err := s.Load(ctx, id)
	if err != nil {
		return nil, driver.Record{}, false, err
	}
	if _, free := rec.Claim(rec.Now, c); !free {
		return nil, rec, false, nil
	}
	tx, err := s.start(ctx)
	if err != nil {
		return nil, driver.Record{}, false, err
	}
	rec, owned, err := tx.claim(ctx, id, c)
	if err != nil || !owned {
		tx.Rollback()
		return nil, rec, false, err
	}
	return tx, rec, true, nil
}

// wantEffects fails unless exactly these effects were committed, and every transaction has ended.
func (s *transactor) wantEffects(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.effects, want) {
		s.t.Errorf("effects %q, want %q", s.effects, want)
	}
	if s.begun != s.ended {
		s.t.Errorf("%d transactions began, %d have ended", s.begun, s.ended)
	}
}

// began returns how many transactions have begun.
func (s *transactor) began() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// doubleTx is a transaction of a transactor. Its fields have no lock: one goroutine uses it at a time.
type doubleTx struct {
	s      *transactor
	log    []step
	mark   int
	marked bool
	record *driver.Record // as this transaction sees it
	over   bool
}

// step is what a transaction did: an effect, or a verb to execute at its commit.
type step struct {
	effect string
	verb   func(*driver.Owner) error
}

// effect has an effect in a transaction.
func effect(tx driver.Tx, name string) {
	d := tx.(*doubleTx)
	d.used()
	d.log = append(d.log, step{effect: name})
}

func (tx *doubleTx) used() {
	if tx.over {
		tx.s.t.Error("a transaction was used after its end")
	}
}

func (tx *doubleTx) load(ctx context.Context, id driver.ID) (driver.Record, error) {
	tx.used()
	if err := ctx.Err(); err != nil {
		return driver.Record{}, err
	}
	if tx.record != nil {
		return *tx.record, nil
	}
	return tx.s.Load(ctx, id)
}

func (tx *doubleTx) claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	rec, err := tx.load(ctx, id)
	if err == nil && tx.s.claim != nil {
		err = tx.s.claim()
	}
	if err != nil {
		return driver.Record{}, false, err
	}
	next, ok := rec.Claim(rec.Now, c)
	if ok {
		tx.record = &next
		tx.log = append(tx.log, step{verb: func(by *driver.Owner) error {
			rec, owned, err := tx.s.Store.Claim(context.Background(), id, c)
			*by = rec.Owner()
			return refusalError(owned, err)
		}})
	}
	return next, ok, nil
}

func (tx *doubleTx) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	rec, err := tx.load(ctx, id)
	if err != nil {
		return driver.Record{}, false, err
	}
	if tx.s.settle != nil {
		refused, err := tx.s.settle(o)
		if refused || err != nil && !errors.Is(err, driver.ErrFull) {
			tx.Rollback()
		}
		switch {
		case errors.Is(err, driver.ErrFull):
			return rec, false, err
		case err != nil:
			return rec, false, fmt.Errorf("%w: %w", driver.ErrRolledBack, err)
		case refused:
			return rec, false, nil
		}
	}
	next, ok := rec.Settle(rec.Now, by, o)
	if ok {
		tx.record = &next
		tx.log = append(tx.log, step{verb: func(claimed *driver.Owner) error {
			if *claimed != (driver.Owner{}) {
				by = *claimed
			}
			_, owned, err := tx.s.Store.Settle(context.Background(), id, by, o)
			return refusalError(owned, err)
		}})
		if err := tx.Commit(ctx); err != nil {
			return driver.Record{}, false, err
		}
	} else {
		tx.Rollback()
	}
	return next, ok, nil
}

// refusal is the error of a commit of which a verb was refused.
func refusalError(owned bool, err error) error {
	if err == nil && !owned {
		return fmt.Errorf("%w: the record has changed meanwhile", driver.ErrRolledBack)
	}
	return err
}

func (tx *doubleTx) Mark(ctx context.Context) error {
	tx.used()
	tx.s.mu.Lock()
	tx.s.marks++
	tx.s.mu.Unlock()
	if tx.s.mark != nil {
		if err := tx.s.mark(ctx); err != nil {
			return err
		}
	}
	tx.mark, tx.marked = len(tx.log), true
	return ctx.Err()
}

func (tx *doubleTx) Undo(ctx context.Context) error {
	tx.used()
	if tx.s.undo != nil {
		if err := tx.s.undo(ctx); err != nil {
			return err
		}
	}
	if !tx.marked {
		return errors.New("no mark was set")
	}
	if ctx.Err() == nil {
		tx.log = tx.log[:tx.mark]
	}
	return ctx.Err()
}

func (tx *doubleTx) Commit(ctx context.Context) error {
	tx.used()
	tx.over = true
	defer tx.end() // not before it is durable: whoever has the next turn sees it
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrRolledBack, err)
	}
	if tx.s.commit != nil {
		return tx.s.commit(tx.execute)
	}
	return tx.execute()
}

// execute makes what the transaction did durable, in one step.
func (tx *doubleTx) execute() error {
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var by driver.Owner
	for _, step := range tx.log {
		if step.verb != nil {
			if err := step.verb(&by); err != nil {
				return err
			}
		}
	}
	for _, step := range tx.log {
		if step.verb == nil {
			s.effects = append(s.effects, step.effect)
		}
	}
	s.committed++
	return nil
}

func (tx *doubleTx) Rollback() {
	if !tx.over {
		tx.end()
	}
}

func (tx *doubleTx) end() {
	tx.over = true
	tx.s.mu.Lock()
	tx.s.ended++
	tx.s.mu.Unlock()
	tx.s.turn <- struct{}{}
}

// A txMode is a policy under which handlers work in transactions.
type txMode struct {
	name   string
	policy semel.Policy
}

func (m txMode) onlyOne() bool { return m.policy.OneCommit }

// txModes are all of them, for real time.
func txModes() []txMode {
	oneCommit := inRealTime(shortLease(semel.Hold))
	oneCommit.OneCommit = true
	return []txMode{
		{"hold", inRealTime(shortLease(semel.Hold))},
		{"rerun", inRealTime(shortLease(semel.Rerun))},
		{"one-commit", oneCommit},
	}
}

// brief returns the mode for synctest's time.
func (m txMode) brief() txMode {
	m.policy.Lease = briefLease
	return m
}

// inEachMode runs a test under each of the modes.
func inEachMode(t *testing.T, test func(*testing.T, txMode)) {
	for _, m := range txModes() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			test(t, m)
		})
	}
}

// working is a handler that works in a transaction of s, and then does what after says, if it is not nil.
func (s *transactor) working(in func(http.ResponseWriter, *http.Request, driver.Tx) error, after func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := semel.RunTx(r.Context(), s, func(_ context.Context, tx driver.Tx) error { return in(w, r, tx) })
		if after != nil {
			after(w, r, err)
		}
	})
}

// payIn has an effect in a transaction, and answers 201.
func payIn(tx driver.Tx, w http.ResponseWriter) {
	effect(tx, "paid")
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	w.Write([]byte("paid"))
}

// paying is a transaction's function that does no more than that.
func paying(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
	payIn(tx, w)
	return nil
}

// errConflict is the error of a commit that did not happen, and says so.
var errConflict = fmt.Errorf("%w: could not serialize", driver.ErrRolledBack)

// How a commit may end, besides well.
func commitRefused(func() error) error { return errConflict }
func commitLost(func() error) error    { return errDown } // its connection broke before
func commitUnheard(execute func() error) error { // its connection broke after
	if err := execute(); err != nil {
		return err
	}
	return errDown
}
