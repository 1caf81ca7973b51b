package semel_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

// logger returns a logger without times, and what it has written.
func logger(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})), &b
}

func TestField14_Field19_R86_OneLineAnEventWithTheFieldsThatApply(t *testing.T) {
	t.Parallel()
	id := semel.Identify(nil, semel.KindHTTP, "alice", "k")
	for _, tc := range []struct {
		e    event.Event
		want string
	}{
		{
			event.Event{
				Kind: event.Decision, Result: event.Executed, ID: id, Operation: "POST /payments", Correlation: "c-1",
				Attempt: 2, Fence: 9, Status: 201, Duration: 1500 * time.Microsecond,
			},
			`level=INFO msg=idempotency event=idempotency_check result=executed digest=` + id.String() + ` endpoint="POST /payments" correlation=c-1 instance=pod-1 attempt=2 fence=9 status=201 duration_ms=1.5`,
		},
		{
			event.Event{Kind: event.Decision, Result: event.Refused, Code: refusal.KeyInvalid, Status: 400, Err: errors.New("bad key"), Observed: true},
			`level=INFO msg=idempotency event=idempotency_check result=refused code=IDEMPOTENCY_KEY_INVALID observed=true instance=pod-1 status=400 duration_ms=0 error="bad key"`,
		},
		{
			event.Event{Kind: event.StoreError, Verb: "claim", ID: id, Err: errors.New("down\nsecond line")},
			`level=WARN msg=idempotency event=idempotency_store_error digest=` + id.String() + ` instance=pod-1 verb=claim error="down\nsecond line"`,
		},
		{event.Event{Kind: event.BodyConsumed}, `level=ERROR msg=idempotency event=idempotency_body_consumed instance=pod-1`},
		{
			event.Event{Kind: event.Decision, Result: event.Unknown, Code: refusal.OutcomeUnknown, Status: 409},
			`level=WARN msg=idempotency event=idempotency_check result=unknown code=IDEMPOTENCY_OUTCOME_UNKNOWN instance=pod-1 status=409 duration_ms=0`,
		},
		{event.Event{Kind: event.Fenced, Fence: 3}, `level=WARN msg=idempotency event=idempotency_fenced instance=pod-1 fence=3`},
		{event.Event{Kind: event.PlainIdentity}, `level=WARN msg=idempotency event=idempotency_plain_identity instance=pod-1`},
	} {
		log, out := logger(slog.LevelInfo)
		event.Log(log, "pod-1").Observe(context.Background(), tc.e)
		if got := strings.TrimSuffix(out.String(), "\n"); got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.e.Kind, got, tc.want)
		}
	}
}

func TestALogObserverKeepsTheLoggersLevelAndNeedsNoInstance(t *testing.T) {
	t.Parallel()
	log, out := logger(slog.LevelWarn)
	o := event.Log(log, "")
	o.Observe(context.Background(), event.Event{Kind: event.Decision, Result: event.Executed})
	if out.Len() != 0 {
		t.Errorf("a decision is logged at Warn: %s", out)
	}
	o.Observe(context.Background(), event.Event{Kind: event.Takeover})
	if got, want := out.String(), "level=WARN msg=idempotency event=idempotency_takeover\n"; got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
}
