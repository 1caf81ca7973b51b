package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/webhook"
)

// A registry keeps an endpoint, as a user's table would.
type registry struct {
	webhook.Endpoint
	disabled error // why
	down     error // of the registry itself
	notes    int
}

func (r *registry) find(context.Context, *outbox.Message) (webhook.Endpoint, error) {
	return r.Endpoint, nil
}

func (r *registry) disable(_ context.Context, _ webhook.Endpoint, why error) error {
	if r.down == nil {
		r.Disabled, r.disabled = true, why
	}
	return r.down
}

func (r *registry) failing(_ context.Context, _ webhook.Endpoint, since time.Time) error {
	r.notes++
	if r.down == nil {
		r.FailingSince = since
	}
	return r.down
}

func TestAnEndpointThatFailsForDaysIsDisabled(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]bool{"the time is kept in the process": false, "the time is stored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &registry{Endpoint: webhook.Endpoint{ID: "acme", URL: "https://example.com", Secrets: []string{knownSecret}}}
				o := webhook.Options{Disable: r.disable}
				if stored {
					o.Failing = r.failing
				}
				status := http.StatusInternalServerError
				s := newSender(t, r.find, o)
				s.Over(answering(&status))
				again := func(after time.Duration) error {
					time.Sleep(after)
					if stored { // by another process
						s = newSender(t, r.find, o)
						s.Over(answering(&status))
					}
					return send(t, s, outbox.Message{ID: "m"})
				}
				fails := func(err error) {
					t.Helper()
					if err == nil || errors.Is(err, outbox.ErrRefused) || r.Disabled {
						t.Fatalf("%v, disabled %v; want a failure that is tried again", err, r.Disabled)
					}
				}
				fails(again(0))
				fails(again(5*24*time.Hour - time.Second))
				status = http.StatusOK
				if err := again(0); err != nil {
					t.Fatal(err)
				}
				status = http.StatusNotFound
				fails(again(24 * time.Hour)) // the time begins anew
				fails(again(4 * 24 * time.Hour))
				r.down = errors.New("registry is down")
				err := again(24 * time.Hour)
				if fails(err); !errors.Is(err, r.down) {
					t.Errorf("%v does not say that the registry is down", err)
				}
				r.down = nil
				if err := again(0); !errors.Is(err, outbox.ErrRefused) || !r.Disabled || r.disabled == nil {
					t.Errorf("%v, disabled %v; want it disabled after 5 days, and the message refused", err, r.Disabled)
				}
				if err := again(0); !errors.Is(err, outbox.ErrRefused) {
					t.Errorf("%v, want what comes for a disabled endpoint refused", err)
				}
				r.Disabled = false
				fails(again(0)) // enabled again, it has the whole time again
			})
		})
	}
}

func TestGoneDisablesAtOnce(t *testing.T) {
	t.Parallel()
	r := &registry{Endpoint: webhook.Endpoint{ID: "acme", URL: "https://example.com", Secrets: []string{knownSecret}}}
	status := http.StatusGone
	s := newSender(t, r.find, webhook.Options{Disable: r.disable, Failing: r.failing})
	s.Over(answering(&status))
	if err := send(t, s, outbox.Message{ID: "m"}); !errors.Is(err, outbox.ErrRefused) || !r.Disabled || r.notes > 0 {
		t.Errorf("%v, disabled %v, %d notes; want it refused and disabled", err, r.Disabled, r.notes)
	}
}

// A relay that stops says nothing about the endpoint.
func TestACancelledAttemptIsNoFailureOfTheEndpoint(t *testing.T) {
	t.Parallel()
	r := &registry{Endpoint: webhook.Endpoint{ID: "acme", URL: "https://example.com", Secrets: []string{knownSecret}}}
	ctx, cancel := context.WithCancel(t.Context())
	s := newSender(t, r.find, webhook.Options{Failing: r.failing})
	s.Over(roundTrip(func(*http.Request) (*http.Response, error) {
		cancel()
		return nil, ctx.Err()
	}))
	if err := s.Publish(ctx, []*outbox.Message{{ID: "m"}})[0]; !errors.Is(err, context.Canceled) || r.notes > 0 {
		t.Errorf("%v, %d notes; want it cancelled, and nothing noted", err, r.notes)
	}
}
