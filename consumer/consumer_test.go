package consumer_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

const (
	done, duplicate, busy, failed, dead = consumer.Done, consumer.Duplicate, consumer.Busy, consumer.Failed, consumer.Dead
	ack, nack, term                     = consumer.Ack, consumer.Nack, consumer.Term
)

func TestR80_AMessageIsHandledOnceByEachConsumer(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		g, _ := newGuard(t, newStore(), p)
		var email, stock handler
		for range 3 {
			c := newConsumer(t, g, consumer.Options{}) // as in another process
			c.Handle(t.Context(), message("m1"), email.handle)
		}
		c := newConsumer(t, g, consumer.Options{})
		want(t, c.Handle(t.Context(), message("m1"), email.handle), duplicate, ack, nil)
		want(t, c.Handle(t.Context(), message("m2"), email.handle), done, ack, nil)
		email.want(t, 2)
		other, err := consumer.New(g, "stock", consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want(t, other.Handle(t.Context(), message("m1"), stock.handle), done, ack, nil)
		stock.want(t, 1)
	})
}

func TestR10_ATenantAndAConsumerOfTheSameNameNeverMeet(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, newStore(), semel.Policy{})
	var h handler
	want(t, newConsumer(t, g, consumer.Options{}).Handle(t.Context(), message("m1"), h.handle), done, ack, nil)
	key := semel.Key{Scope: "email", Operation: "email", Value: "m1"}
	n, err := semel.Do(t.Context(), g, key, semel.Bytes("order 7"), func(context.Context) (int, error) { return 7, nil })
	if n != 7 || err != nil {
		t.Errorf("the tenant got %d, %v", n, err)
	}
}

func TestR80_Case28_AFailedMessageIsNotSeen(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		g, _ := newGuard(t, newStore(), p)
		c := newConsumer(t, g, consumer.Options{})
		h := handler{errs: []error{errMail, errMail, errMail}}
		for i := range 3 {
			r := c.Handle(t.Context(), message("m1"), h.handle)
			want(t, r, failed, nack, errMail)
			within(t, r.Delay, time.Second<<i)
		}
		var attempt int
		r := c.Handle(t.Context(), message("m1"), func(ctx context.Context, _ consumer.Message) error {
			attempt = semel.FromContext(ctx).Attempt()
			return nil
		})
		want(t, r, done, ack, nil)
		if attempt != 4 {
			t.Errorf("it was run %d of the message, want 4", attempt)
		}
		want(t, c.Handle(t.Context(), message("m1"), h.handle), duplicate, ack, nil)
		h.want(t, 3)
	})
}

func TestCase29_ADeliberateSecondSendHasANewID(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, newStore(), semel.Policy{})
	c := newConsumer(t, g, consumer.Options{})
	var list []string
	// The handler defers the message: it sends it again, for later, and is done with this one.
	deferring := func(_ context.Context, m consumer.Message) error {
		if list = append(list, m.ID); len(list) == 1 {
			m.ID += "/2"
			list = append(list, m.ID)
		}
		return nil
	}
	want(t, c.Handle(t.Context(), message("m1"), deferring), done, ack, nil)
	want(t, c.Handle(t.Context(), message(list[1]), deferring), done, ack, nil)
	want(t, c.Handle(t.Context(), message("m1"), deferring), duplicate, ack, nil)
	if got := strings.Join(list, " "); got != "m1 m1/2 m1/2" {
		t.Errorf("handled %s", got)
	}
}

// It is delivered again while it is being handled, longer than its lease.
func TestR82_AMessageThatIsHandledElsewhereIsNeverAcked(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		synctest.Test(t, func(t *testing.T) {
			g, _ := newGuard(t, newStore(), p)
			first := make(chan consumer.Result)
			var calls atomic.Int64
			slow := func(context.Context, consumer.Message) error {
				calls.Add(1)
				time.Sleep(100 * time.Second)
				return nil
			}
			go func() { first <- newConsumer(t, g, consumer.Options{}).Handle(t.Context(), message("m1"), slow) }()
			synctest.Wait()
			held := newConsumer(t, g, consumer.Options{Hold: 5 * time.Second})
			for i := range 9 {
				start := time.Now()
				r := newConsumer(t, g, consumer.Options{}).Handle(t.Context(), message("m1"), slow)
				want(t, r, busy, nack, refusal.InProgress)
				if time.Since(start) != 0 || r.Delay < time.Second || r.Delay > 30*time.Second {
					t.Errorf("after %v: nack with %v", time.Since(start), r.Delay)
				}
				want(t, held.Handle(t.Context(), message("m1"), slow), busy, nack, refusal.InProgress)
				if time.Since(start) != 5*time.Second {
					t.Errorf("held for %v, want 5s", time.Since(start))
				}
				if i < 8 {
					time.Sleep(5 * time.Second)
				}
			}
			time.Sleep(10*time.Second + 100*time.Millisecond)
			want(t, held.Handle(t.Context(), message("m1"), slow), duplicate, ack, nil) // it was waited for
			want(t, <-first, done, ack, nil)
			if calls.Load() != 1 {
				t.Errorf("handled %d times", calls.Load())
			}
		})
	})
}

func TestR82_APoisonedMessageIsADeadLetterOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		g, _ := newGuard(t, newStore(), p)
		var d desk
		c := newConsumer(t, g, consumer.Options{MaxAttempts: 3, DeadLetter: d.take})
		h := handler{errs: []error{errMail, errMail, errMail}}
		for range 2 {
			want(t, c.Handle(t.Context(), message("m1"), h.handle), failed, nack, errMail)
		}
		d.want(t)
		want(t, c.Handle(t.Context(), message("m1"), h.handle), dead, term, errMail)
		d.want(t, errMail)
		if got := d.letters[0].Message; got.ID != "m1" || string(got.Payload) != "order 7" || got.Topic != "orders" {
			t.Errorf("the letter is %+v", got)
		}
		for range 2 {
			r := c.Handle(t.Context(), message("m1"), h.handle)
			if r.Outcome != dead || r.Action != term || !strings.Contains(r.Err.Error(), errMail.Error()) {
				t.Errorf("delivered again: %+v", r)
			}
		}
		d.want(t, errMail)
		h.want(t, 3)
		want(t, c.Handle(t.Context(), message("m2"), h.handle), done, ack, nil)
	})
}

func TestAFinalErrorIsADeadLetterAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		g, _ := newGuard(t, newStore(), p)
		var d desk
		c := newConsumer(t, g, consumer.Options{DeadLetter: d.take})
		h := handler{errs: []error{semel.Final(errMail)}}
		want(t, c.Handle(t.Context(), message("m1"), h.handle), dead, term, errMail)
		r := c.Handle(t.Context(), message("m1"), h.handle)
		if r.Outcome != dead || r.Action != term {
			t.Errorf("delivered again: %+v", r)
		}
		d.want(t, errMail)
		h.want(t, 1)
	})
}

// Nothing is lost while dead letters can't be taken, and the reason is known when they can.
func TestAMessageStaysWhileItsDeadLetterIsRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		g, _ := newGuard(t, newStore(), p)
		d := desk{shut: semel.Final(errors.New("no room for letters"))}
		c := newConsumer(t, g, consumer.Options{MaxAttempts: 1, DeadLetter: d.take})
		h := handler{errs: []error{errMail}}
		r := c.Handle(t.Context(), message("m1"), h.handle)
		want(t, r, failed, nack, d.shut)
		for range 3 {
			want(t, c.Handle(t.Context(), message("m1"), h.handle), failed, nack, consumer.ErrExhausted)
		}
		d.shut = nil
		want(t, c.Handle(t.Context(), message("m1"), h.handle), dead, term, consumer.ErrExhausted)
		d.want(t, consumer.ErrExhausted)
		if got, want := d.letters[0].reason.Error(), consumer.ErrExhausted.Error()+": "+errMail.Error(); got != want {
			t.Errorf("the reason is %q, want %q", got, want)
		}
		h.want(t, 1)
	})
}

func TestADeadLetterThatThrowsIsRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		g, _ := newGuard(t, newStore(), p)
		c := newConsumer(t, g, consumer.Options{DeadLetter: func(ctx context.Context, _ consumer.Message, _ error) error {
			if semel.FromContext(ctx) != nil {
				t.Error("a dead letter's transactions would be the message's")
			}
			panic("no desk")
		}})
		h := handler{errs: []error{semel.Final(errMail), nil}}
		r := c.Handle(t.Context(), message("m1"), h.handle)
		want(t, r, failed, nack, errMail)
		if !strings.Contains(r.Err.Error(), "no desk") {
			t.Errorf("the error is %v", r.Err)
		}
		want(t, c.Handle(t.Context(), message("m1"), h.handle), done, ack, nil)
	})
}

// lose has runs of m1 whose process dies.
func lose(t *testing.T, s *memstore.Store, p semel.Policy, times int) {
	t.Helper()
	for range times {
		mine := &store{Store: s}
		g, _ := newGuard(t, mine, p)
		begun := make(chan struct{})
		go newConsumer(t, g, consumer.Options{}).Handle(t.Context(), message("m1"), func(ctx context.Context, _ consumer.Message) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		})
		<-begun
		mine.set(func() { mine.cut = true })
		time.Sleep(31 * time.Second)
	}
}

func TestR82_ARunThatEndedWithItsProcessCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := newStore(), semel.Policy{OnLost: semel.Rerun, MaxRun: 10 * time.Minute}
		lose(t, s.Store, p, 2)
		g, _ := newGuard(t, s, p)
		var d desk
		var h handler
		c := newConsumer(t, g, consumer.Options{MaxAttempts: 2, DeadLetter: d.take})
		want(t, c.Handle(t.Context(), message("m1"), h.handle), dead, term, consumer.ErrExhausted)
		r := c.Handle(t.Context(), message("m1"), h.handle)
		if r.Outcome != dead || r.Action != term {
			t.Errorf("delivered again: %+v", r)
		}
		h.want(t, 0)
		d.want(t, consumer.ErrExhausted)
		time.Sleep(time.Hour)
	})
}

func TestR80_UnderRerunALostMessageIsRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := newStore(), semel.Policy{OnLost: semel.Rerun}
		lose(t, s.Store, p, 2)
		g, _ := newGuard(t, s, p)
		var h handler
		want(t, newConsumer(t, g, consumer.Options{}).Handle(t.Context(), message("m1"), h.handle), done, ack, nil)
		time.Sleep(time.Hour)
	})
}

func TestUnderHoldALostMessageIsADeadLetterOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		lose(t, s.Store, semel.Policy{}, 1)
		g, _ := newGuard(t, s, semel.Policy{})
		var d desk
		var h handler
		c := newConsumer(t, g, consumer.Options{DeadLetter: d.take})
		for range 3 {
			r := c.Handle(t.Context(), message("m1"), h.handle)
			if r.Outcome != dead || r.Action != term || r.Delay != 0 {
				t.Errorf("got %+v", r)
			}
		}
		d.want(t, refusal.OutcomeUnknown)
		h.want(t, 0)
		time.Sleep(time.Hour)
	})
}

func TestR80_AnotherPayloadUnderAnIDIsADeadLetterOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		g, _ := newGuard(t, newStore(), p)
		var d desk
		var h handler
		c := newConsumer(t, g, consumer.Options{DeadLetter: d.take})
		want(t, c.Handle(t.Context(), message("m1"), h.handle), done, ack, nil)
		for _, payload := range []string{"order 8", "order 8", "order 9", "order 8"} {
			m := message("m1")
			m.Payload = []byte(payload)
			r := c.Handle(t.Context(), m, h.handle)
			if r.Outcome != dead || r.Action != term {
				t.Errorf("%s: %+v", payload, r)
			}
		}
		want(t, c.Handle(t.Context(), message("m1"), h.handle), duplicate, ack, nil)
		d.want(t, refusal.KeyReused, refusal.KeyReused)
		h.want(t, 1)
	})
}

func TestAMessageThatCantBeToldApartIsADeadLetter(t *testing.T) {
	t.Parallel()
	panics := errors.New("no such field")
	for _, c := range []struct {
		name    string
		o       consumer.Options
		m       consumer.Message
		why     error // nil: it is handled
		letters int   // for two deliveries
	}{
		{"without an id", consumer.Options{}, message(""), consumer.ErrNoID, 2},
		{"without an id that can be derived", consumer.Options{ID: func(consumer.Message) string { return "" }}, message(""), consumer.ErrNoID, 2},
		{"with a derived id", consumer.Options{ID: func(m consumer.Message) string { return m.Topic + "/0/17" }}, message(""), nil, 0},
		{"with an id of its own", consumer.Options{ID: func(consumer.Message) string { panic(panics) }}, message("m1"), nil, 0},
		{"whose id can't be derived", consumer.Options{ID: func(consumer.Message) string { panic(panics) }}, message(""), nil, 2},
		{"whose fingerprint can't be made", consumer.Options{Fingerprint: func(consumer.Message) []byte { panic(panics) }}, message("m1"), nil, 1},
		{"as large as is allowed", consumer.Options{MaxPayload: 7}, message("m1"), nil, 0},
		{"too large", consumer.Options{MaxPayload: 6}, message("m1"), consumer.ErrTooLarge, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGuard(t, newStore(), semel.Policy{})
			var d desk
			var h handler
			c.o.DeadLetter = d.take
			k := newConsumer(t, g, c.o)
			for i := range 2 {
				r := k.Handle(t.Context(), c.m, h.handle)
				wanted := [...]consumer.Outcome{done, duplicate}[i]
				if c.letters > 0 {
					wanted = dead
				}
				if r.Outcome != wanted || r.Action == nack || i == 0 && c.why != nil && !errors.Is(r.Err, c.why) {
					t.Errorf("delivery %d: %+v", i+1, r)
				}
			}
			if len(d.letters) != c.letters {
				t.Errorf("%d letters, want %d", len(d.letters), c.letters)
			}
		})
	}
}

func TestTheHandlerSeesADerivedID(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, newStore(), semel.Policy{})
	c := newConsumer(t, g, consumer.Options{ID: func(m consumer.Message) string { return m.Topic + "/0/17" }})
	var id string
	c.Handle(t.Context(), message(""), func(_ context.Context, m consumer.Message) error { id = m.ID; return nil })
	if id != "orders/0/17" {
		t.Errorf("the handler saw the id %q", id)
	}
}

func TestAnIDIsAnyText(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, newStore(), semel.Policy{})
	var d desk
	c := newConsumer(t, g, consumer.Options{DeadLetter: d.take})
	ids := []string{
		"m1", "M1", "a b", `"a"`, "a,b", "a;b", `a\b`, "\x00", "\xff", "näm", strings.Repeat("x", 255), strings.Repeat("x", 256),
		strings.Repeat("x", 1<<20), "'; DROP TABLE", "../m1", "m1\r\n", " m1", "sha256:", "dead:",
		fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("a b"))),
	}
	for _, id := range ids {
		want(t, c.Handle(t.Context(), message(id), new(handler).handle), done, ack, nil)
	}
	for _, id := range ids {
		want(t, c.Handle(t.Context(), message(id), new(handler).handle), duplicate, ack, nil)
	}
	d.want(t)
}

func TestAFingerprintSaysWhatIsTheSameMessage(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, newStore(), semel.Policy{})
	var d desk
	c := newConsumer(t, g, consumer.Options{DeadLetter: d.take, Fingerprint: func(m consumer.Message) []byte {
		return []byte(m.Headers["order"])
	}})
	m := message("m1")
	m.Headers = map[string]string{"order": "7"}
	want(t, c.Handle(t.Context(), m, new(handler).handle), done, ack, nil)
	m.Payload = []byte("order 7, encoded anew")
	want(t, c.Handle(t.Context(), m, new(handler).handle), duplicate, ack, nil)
	m.Headers = map[string]string{"order": "8"}
	want(t, c.Handle(t.Context(), m, new(handler).handle), dead, term, refusal.KeyReused)
}

func TestR32_AHandlerThatThrowsDoesNotEndTheLoop(t *testing.T) {
	t.Parallel()
	for name, throw := range map[string]func(){"a panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		both(t, func(t *testing.T, p semel.Policy) {
			t.Run(name, func(t *testing.T) {
				g, seen := newGuard(t, newStore(), p)
				var d desk
				c := newConsumer(t, g, consumer.Options{DeadLetter: d.take, MaxAttempts: 2})
				throws := func(context.Context, consumer.Message) error { throw(); return nil }
				r := c.Handle(t.Context(), message("m1"), throws)
				if r.Outcome != failed || r.Action != nack || r.Delay == 0 || r.Err == nil {
					t.Errorf("got %+v", r)
				}
				if n := seen.count(string(event.Panic)); n != 1 {
					t.Errorf("%d events of a panic, want 1", n)
				}
				d.want(t)
				r = c.Handle(t.Context(), message("m1"), throws)
				if r.Outcome != dead || r.Action != term {
					t.Errorf("delivered again: %+v", r)
				}
				runs := map[semel.LostPolicy]int{semel.Hold: 1, semel.Rerun: 2}[p.OnLost]
				if n := seen.count(string(event.Panic)); n != runs || len(d.letters) != 1 {
					t.Errorf("%d runs and %d letters, want %d and 1", n, len(d.letters), runs)
				}
			})
		})
	}
}

func TestAMessageWaitsForAStoreThatIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		g, _ := newGuard(t, s, semel.Policy{})
		var d desk
		var h handler
		c := newConsumer(t, g, consumer.Options{DeadLetter: d.take, MaxAttempts: 2})
		s.set(func() { s.down = true })
		m := message("m1")
		for m.Deliveries = 1; m.Deliveries <= 12; m.Deliveries++ {
			r := c.Handle(t.Context(), m, h.handle)
			want(t, r, failed, nack, refusal.StoreUnavailable)
			if r.Delay < 5*time.Second || r.Delay > 5*time.Minute {
				t.Errorf("the delay is %v", r.Delay)
			}
		}
		h.want(t, 0)
		s.set(func() { s.down = false })
		time.Sleep(2 * time.Minute)
		want(t, c.Handle(t.Context(), m, h.handle), done, ack, nil)
		d.want(t)
	})
}

// The store goes down while the handler runs: it is not known whether the message counts as handled.
func TestAMessageWhoseEndIsNotRecordedIsNotAcked(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			g, _ := newGuard(t, s, p)
			c := newConsumer(t, g, consumer.Options{})
			var h handler
			r := c.Handle(t.Context(), message("m1"), func(ctx context.Context, m consumer.Message) error {
				s.set(func() { s.cut = true })
				return h.handle(ctx, m)
			})
			want(t, r, busy, nack, refusal.OutcomePending)
			s.set(func() { s.cut = false })
			time.Sleep(time.Minute)
			want(t, c.Handle(t.Context(), message("m1"), h.handle), duplicate, ack, nil)
			h.want(t, 1)
		})
	})
}

func TestR29_AConsumerThatEndsDoesNotEndItsHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, newStore(), semel.Policy{})
		c := newConsumer(t, g, consumer.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := c.Handle(ctx, message("m1"), func(ctx context.Context, _ consumer.Message) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		want(t, r, busy, nack, refusal.OutcomePending)
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, c.Handle(t.Context(), message("m1"), new(handler).handle), duplicate, ack, nil)
	})
}

func TestTheBrokerIsToldThatAHandlerIsAtWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, newStore(), semel.Policy{})
		var told atomic.Int64
		m := message("m1")
		m.KeepAlive = func() error {
			if told.Add(1) == 2 {
				panic("the connection is gone")
			}
			return errors.New("too late")
		}
		r := newConsumer(t, g, consumer.Options{}).Handle(t.Context(), m, func(context.Context, consumer.Message) error {
			time.Sleep(35 * time.Second)
			return nil
		})
		want(t, r, done, ack, nil)
		time.Sleep(time.Hour)
		if told.Load() != 3 {
			t.Errorf("told %d times, want 3", told.Load())
		}
	})
}

func TestR84_AMessageGoesOnAfterItsLastStep(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p semel.Policy) {
		g, _ := newGuard(t, newStore(), p)
		c := newConsumer(t, g, consumer.Options{})
		var steps, keys []string
		handle := func(ctx context.Context, _ consumer.Message) error {
			for _, name := range []string{"reserve", "charge"} {
				if _, err := semel.Step(ctx, name, func(ctx context.Context) (int, error) {
					steps = append(steps, name)
					key, _ := semel.StepKey(ctx)
					keys = append(keys, key)
					if len(steps) == 2 {
						return 0, errMail
					}
					return 0, nil
				}); err != nil {
					return err
				}
			}
			return nil
		}
		want(t, c.Handle(t.Context(), message("m1"), handle), failed, nack, errMail)
		want(t, c.Handle(t.Context(), message("m1"), handle), done, ack, nil)
		if got := strings.Join(steps, " "); got != "reserve charge charge" || keys[1] != keys[2] {
			t.Errorf("steps %s with the keys %v", got, keys)
		}
	})
}

func TestR53_AMessageIsRememberedForItsRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			o      consumer.Options
			p      semel.Policy
			before time.Duration
			after  consumer.Outcome
		}{
			{consumer.Options{}, semel.Policy{Retention: time.Hour}, 24*time.Hour - time.Second, done},
			{consumer.Options{Retention: time.Hour}, semel.Policy{}, time.Hour - time.Second, done},
			{consumer.Options{Retention: time.Hour}, semel.Policy{Tombstone: time.Hour}, time.Hour, duplicate},
		} {
			g, _ := newGuard(t, newStore(), c.p)
			k := newConsumer(t, g, c.o)
			k.Handle(t.Context(), message("m1"), new(handler).handle)
			time.Sleep(c.before)
			want(t, k.Handle(t.Context(), message("m1"), new(handler).handle), duplicate, ack, nil)
			time.Sleep(2 * time.Second)
			want(t, k.Handle(t.Context(), message("m1"), new(handler).handle), c.after, ack, nil)
		}
	})
}

func TestR41a_AMessageWhoseRecordCantBeReadIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := newStore()
	g, _ := newGuard(t, s, semel.Policy{})
	var d desk
	c := newConsumer(t, g, consumer.Options{DeadLetter: d.take})
	want(t, c.Handle(t.Context(), message("m0"), new(handler).handle), done, ack, nil)
	s.unreadable = semel.Identify(secret, semel.KindMessage, "email", "m0")
	var h handler
	for range 2 {
		want(t, c.Handle(t.Context(), message("m0"), h.handle), dead, term, refusal.ReplayUnavailable)
	}
	d.want(t, refusal.ReplayUnavailable)
	h.want(t, 0)
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, newStore(), semel.Policy{})
	for _, c := range []struct {
		guard *semel.Guard
		name  string
		o     consumer.Options
		want  string
	}{
		{nil, "email", consumer.Options{}, "guard is nil"},
		{g, "", consumer.Options{}, "name"},
		{g, strings.Repeat("x", 256), consumer.Options{}, "name"},
		{g, "a\x00b", consumer.Options{}, "name"},
		{g, "email", consumer.Options{Hold: 6 * time.Second}, "Hold"},
		{g, "email", consumer.Options{Hold: -1}, "Hold"},
		{g, "email", consumer.Options{KeepAlive: -1}, "KeepAlive"},
		{g, "email", consumer.Options{MinBackoff: -1}, "MinBackoff"},
		{g, "email", consumer.Options{MinBackoff: 2, MaxBackoff: 1}, "MinBackoff"},
		{g, "email", consumer.Options{MaxAttempts: -1}, "MaxAttempts"},
		{g, "email", consumer.Options{MaxPayload: -1}, "MaxPayload"},
		{g, "email", consumer.Options{Retention: -1}, "Retention"},
		{g, "email", consumer.Options{Retention: time.Minute}, "Retention is 1m0s, want at least MaxRun + Lease"},
	} {
		k, err := consumer.New(c.guard, c.name, c.o)
		if err == nil || k != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %+v: %v", c.name, c.o, err)
		}
	}
}
