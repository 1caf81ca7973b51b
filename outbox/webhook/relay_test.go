package webhook_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/outboxtest"
	"github.com/semelhq/semel/outbox/webhook"
)

// An endpoint that fails is tried again by the schedule, however short a time it asks for, and with the same id.
func TestARelayTriesAgainByTheSchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := outboxtest.NewMemory(outbox.Options{Keep: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		s := newSender(t, at(webhook.Endpoint{ID: "acme", URL: "https://example.com", Secrets: []string{knownSecret}}), webhook.Options{})
		began := time.Now()
		var came []time.Duration
		var stamps []string
		s.Over(roundTrip(func(r *http.Request) (*http.Response, error) {
			came = append(came, time.Since(began))
			stamps = append(stamps, r.Header.Get("webhook-timestamp"))
			w := httptest.NewRecorder()
			switch len(came) {
			case 1:
				w.WriteHeader(http.StatusInternalServerError)
			case 2:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			case 3:
				w.Header().Set("Retry-After", "7200")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			if id := r.Header.Get("webhook-id"); id != "msg_1" {
				t.Errorf("the id is %q", id)
			}
			return w.Result(), nil
		}))
		if err := store.Add(outbox.Message{ID: "msg_1", Topic: "acme", Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		relay, err := outbox.NewRelay(store, s, s.RelayOptions())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		if err := relay.Run(ctx); err != nil {
			t.Fatal(err)
		}
		at := time.Duration(0)
		wanted := []time.Duration{0, 5 * time.Second, 5 * time.Minute, 2 * time.Hour} // 30 min, but for its answer
		if len(came) != len(wanted) {
			t.Fatalf("it came after %v, want %v from one to the next", came, wanted)
		}
		for i, want := range wanted {
			// The relay looks once a second or twice, and a lane in which all fails is paused for a minute at most.
			if d := came[i] - at; d < want || d > want+want/10+time.Minute+time.Second {
				t.Errorf("attempt %d came %v after the one before, want about %v", i+1, d, want)
			}
			at = came[i]
		}
		if stamps[0] == stamps[1] {
			t.Errorf("the timestamps of two attempts are %q", stamps[:2])
		}
		if stats, err := store.Stats(t.Context()); err != nil || stats.Pending+stats.Dead != 0 {
			t.Errorf("%+v, %v; want it sent", stats, err)
		}
	})
}
