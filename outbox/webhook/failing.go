package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/outbox"
)

// failing remembers since when endpoints have failed, where Options.Failing does not store it.
type failing struct {
	sync.Mutex
	since map[string]time.Time // by Endpoint.ID
}

func (f *failing) get(id string) time.Time {
	f.Lock()
	defer f.Unlock()
	return f.since[id]
}

func (f *failing) set(id string, since time.Time) {
	f.Lock()
	defer f.Unlock()
	switch {
	case since.IsZero():
		delete(f.since, id)
	case f.since == nil:
		f.since = map[string]time.Time{id: since}
	default:
		f.since[id] = since
	}
}

// judge draws the conclusions of an attempt for its endpoint, and returns the error for the message. err is what the
// attempt has returned.
func (s *Sender) judge(ctx context.Context, e Endpoint, err error) error {
	since := e.FailingSince
	if s.o.Failing == nil {
		since = s.failing.get(e.ID)
	}
	if err == nil {
		if !since.IsZero() {
			// The message has arrived, whatever becomes of the note. If it is not stored, the next success tries again.
			_ = s.note(ctx, e, time.Time{})
		}
		return nil
	}
	var f *failure
	gone := errors.As(err, &f) && f.status == http.StatusGone
	now := time.Now()
	switch {
	case gone, !since.IsZero() && s.o.DisableAfter > 0 && now.Sub(since) >= s.o.DisableAfter:
		if !gone {
			err = fmt.Errorf("it has failed since %s, the last time so: %w", since.UTC().Format(time.RFC3339), err)
		}
		if s.o.Disable != nil {
			if failed := s.o.Disable(ctx, e, err); failed != nil {
				return fmt.Errorf("%w; disable the endpoint: %w", err, failed)
			}
			if !since.IsZero() {
				_ = s.note(ctx, e, time.Time{}) // once enabled again, it has the whole time again
			}
		} else if !gone {
			return err
		}
		return fmt.Errorf("%w: %w", outbox.ErrRefused, err)
	case since.IsZero():
		if failed := s.note(ctx, e, now); failed != nil {
			return fmt.Errorf("%w; note that the endpoint fails: %w", err, failed)
		}
	}
	return err
}

// note stores since when an endpoint has failed.
func (s *Sender) note(ctx context.Context, e Endpoint, since time.Time) error {
	if s.o.Failing == nil {
		s.failing.set(e.ID, since)
		return nil
	}
	return s.o.Failing(ctx, e, since)
}
