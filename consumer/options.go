package consumer

import (
	"context"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/settings"
)

// Options are a consumer's settings. The zero value of each field means the documented default.
type Options struct {
	// ID gives a message an id that came without one: from its topic, partition and offset, or from fields of its
	// payload. "" means that it has none. Such a message is dead. Defaults to giving none.
	ID func(Message) string
	// Fingerprint returns the bytes that are the same in every delivery of a message. If a message comes under the id of
	// another, it is dead. Defaults to the payload.
	Fingerprint func(Message) []byte
	// MaxPayload is the largest payload in bytes; a larger one is dead. Defaults to no limit but the broker's.
	MaxPayload int64

	// MaxAttempts is how often a message is run before it is dead. A run that ended with its process counts. Defaults to
	// 10.
	MaxAttempts int
	// DeadLetter takes a message that is given up, and the reason. If it returns an error, the message is delivered again,
	// and so is the dead letter. It is called once for a message, unless its process dies before that is recorded. Its
	// context has the values of the context of [Consumer.Handle]. Defaults to a line in slog.Default().
	DeadLetter func(ctx context.Context, m Message, reason error) error
	// MinBackoff and MaxBackoff bound the delay after a failed run: it doubles with each run, and is shortened at random
	// by up to a half. They default to 1 s and 5 min.
	MinBackoff, MaxBackoff time.Duration

	// Retention is how long a message is remembered, from its completion. It has to be longer than the broker may take to
	// deliver a message again, and at least the policy's MaxRun + Lease. Defaults to 24 h.
	Retention time.Duration
	// Hold is how long a message waits for its run elsewhere before it is given back to the broker; at most 5 s. It is for
	// brokers that can't delay a message. Defaults to no wait.
	Hold time.Duration
	// KeepAlive is the time between two calls of Message.KeepAlive. It has to be well below the time after which the
	// broker delivers a message again. Defaults to 10 s.
	KeepAlive time.Duration
}

const maxHold = 5 * time.Second

// compile fills in the defaults, and returns what is wrong.
func (o *Options) compile() error {
	f := settings.Faults{Where: "options: "}
	settings.Fill(&f, "MaxPayload", &o.MaxPayload, 0)
	settings.Fill(&f, "MaxAttempts", &o.MaxAttempts, 10)
	settings.Fill(&f, "MinBackoff", &o.MinBackoff, time.Second)
	settings.Fill(&f, "MaxBackoff", &o.MaxBackoff, max(5*time.Minute, o.MinBackoff))
	f.If(o.MinBackoff > o.MaxBackoff, "MinBackoff is %v, above MaxBackoff, which is %v", o.MinBackoff, o.MaxBackoff)
	settings.Fill(&f, "Retention", &o.Retention, 0)
	settings.FillUpTo(&f, "Hold", &o.Hold, 0, maxHold)
	settings.Fill(&f, "KeepAlive", &o.KeepAlive, 10*time.Second)
	return f.Err()
}

// policy is the policy of a consumer whose guard has policy p. What p says about requests and answers does not apply,
// and no message is run unprotected.
func (o *Options) policy(p semel.Policy) semel.Policy {
	return semel.Policy{
		OnLost: p.OnLost, OnError: semel.ReleaseErrors, Lease: p.Lease, MaxRun: p.MaxRun, SettleWait: p.SettleWait,
		Retention: o.Retention, Tombstone: p.Tombstone, Wait: o.Hold, MaxWaiters: p.MaxWaiters, OneCommit: p.OneCommit,
		KeyHeaders: p.KeyHeaders, // unused, but the defaults may be taken for something else
	}
}
