package rounds

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
)

// A scanner fails, panics, and then scans until its context ends.
type scanner struct {
	driver.Lister
	scans []func() error
}

func (s *scanner) Scan(ctx context.Context) error {
	if len(s.scans) > 0 {
		next := s.scans[0]
		s.scans = s.scans[1:]
		return next()
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestAScanThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		s := &scanner{scans: []func() error{func() error { return down }, func() error { panic("no pool") }}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var told []error
		Scan(ctx, s, func(err error) { told = append(told, err) })
		if len(told) != 2 || !errors.Is(told[0], down) || told[1] == nil || len(s.scans) != 0 || ctx.Err() == nil {
			t.Errorf("told %v; the context: %v", told, ctx.Err())
		}
	})
}

func TestAStoreThatNeedsNoScanIsNotScanned(t *testing.T) {
	t.Parallel()
	failed := func(err error) { t.Errorf("told %v", err) }
	Scan(t.Context(), few{}, failed)
	Scan(t.Context(), &scanner{scans: []func() error{func() error { return errors.ErrUnsupported }}}, failed)
	if Scans(few{}) || !Scans(&scanner{}) {
		t.Error("which store scans is mistaken")
	}
}
