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

var (
	errNotOpen = errors.New("its store is not open yet")
	errLacks   = errors.New("its store lacks an optional interface that the others have")
)

// A lateStore is opened once its server is there. It is opened in the background, so that no request waits for it.
type lateStore struct {
	open   func(ctx context.Context) (driver.Store, error)
	opened atomic.Pointer[driver.Store]

	mu    sync.Mutex
	needs []capability // that it must have; see [store.promise]
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
	if !l.busy && !errors.Is(l.err, errLacks) && !time.Now().Before(l.after) {
		l.busy = true
		go l.try()
	}
	if l.err != nil {
		return nil, fmt.Errorf("%w: %w: %w", driver.ErrNotExecuted, errNotOpen, l.err)
	}
	return nil, fmt.Errorf("%w: %w", driver.ErrNotExecuted, errNotOpen)
}

func (l *lateStore) try() {
	s, err := l.attempt()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && !hasAll(s, l.needs) {
		err = errLacks
	}
	if err == nil {
		l.opened.Store(&s)
	}
	l.busy, l.after, l.err = false, time.Now().Add(openAgain), err
}

func (l *lateStore) attempt() (s driver.Store, err error) {
	defer thrown.Catch(&err)
	if s, err = l.open(context.Background()); err == nil && s == nil {
		err = errors.New("there is neither a store nor an error")
	}
	return s, err
}
