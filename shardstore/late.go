package shardstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/thrown"
)

// openAgain is how long after a failure a store is opened again.
const openAgain = time.Second

var errNotOpen = errors.New("its store is not open yet")

// What is wrong with a store for good.
var (
	errLacks       = errors.New("its store lacks an optional interface that the others have")
	errOtherSecret = errors.New("its store was first used with another identity secret than the others")
)

// A lateStore is opened once its server is there. It is opened in the background, so that no request waits for it.
type lateStore struct {
	open   func(ctx context.Context) (driver.Store, error)
	over   *store                       // of which it is a shard's
	made   driver.Store                 // what open has given
	opened atomic.Pointer[driver.Store] // once it fits

	mu    sync.Mutex
	busy  bool
	after time.Time // when it may be tried again
	err   error     // of the last try
}

// get returns the store, or why there is none; then it may have begun to open it.
func (l *lateStore) get() (driver.Store, error) {
	if s := l.opened.Load(); s != nil {
		return *s, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := errors.Is(l.err, errLacks) || errors.Is(l.err, errOtherSecret)
	if !l.busy && !wrong && !time.Now().Before(l.after) {
		l.busy = true
		go l.try()
	}
	if l.err != nil {
		return nil, fmt.Errorf("%w: %w: %w", driver.ErrNotExecuted, errNotOpen, l.err)
	}
	return nil, fmt.Errorf("%w: %w", driver.ErrNotExecuted, errNotOpen)
}

func (l *lateStore) try() {
	err := l.attempt()
	if err == nil {
		err = l.take()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.after, l.err = false, time.Now().Add(openAgain), err
}

// attempt opens the store, unless an earlier attempt has.
func (l *lateStore) attempt() (err error) {
	defer thrown.Catch(&err)
	if l.made != nil {
		return nil
	}
	s, err := l.open(context.Background())
	if err == nil && s == nil {
		return errors.New("there is neither a store nor an error")
	}
	if err == nil {
		l.made = s
	}
	return err
}

// take takes the store that is open, unless it does not fit. Who asks for a reserved record meanwhile waits: it is
// asked for in this store too, or compared here.
func (l *lateStore) take() (err error) {
	defer thrown.Catch(&err)
	ctx, cancel := context.WithTimeout(context.Background(), fitTime)
	defer cancel()
	l.over.reserved.Lock()
	defer l.over.reserved.Unlock()
	if !hasAll(l.made, l.over.needs) {
		return errLacks
	}
	for id := range l.over.reserved.asked {
		rec, err := l.made.Load(ctx, id)
		if err == nil && rec.State != driver.Absent { // else the next process will write it
			err = l.over.agrees(ctx, id, rec.Fingerprint)
		}
		if err != nil {
			return err
		}
	}
	l.opened.Store(&l.made)
	return nil
}

// fitTime is how long it may take to compare a store with the others.
const fitTime = 5 * time.Second
