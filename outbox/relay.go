package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/settings"
)

// A Relay takes messages out of an outbox and hands them to a [Publisher].
//
//   - Each message is sent at least once, under its id. It is sent again if its acknowledgement was lost, or the relay or
//     the store failed before the acknowledgement was stored.
//   - Messages of one lane and key are sent one after the other. One that failed keeps the later ones back until it is
//     sent, dead or dropped.
//   - A lane in which everything fails is paused, and tried with one message at a time. Only that one's attempt counts. So
//     an outage of the broker makes no dead letters, unless it lasts for as long as MaxAttempts attempts of one message.
//   - No lock is held in the store while a message is sent.
//
// Any number of relays may work on one outbox. A Relay is made by [NewRelay].
type Relay struct {
	store     Store
	publisher Publisher
	o         RelayOptions
	counts    counters
}

// RelayOptions are the settings of a [Relay]. The zero value is valid.
type RelayOptions struct {
	// Batch is how many messages are given to the Publisher at once at most. Defaults to 512.
	Batch int
	// Bytes is how large the payloads of a batch are at most, in all, unless one message is larger. Defaults to 8 MiB.
	Bytes int
	// Concurrency is how many batches of one topic may be with the Publisher at once; of all topics, 16 times as many. A
	// slow topic holds up only itself. Defaults to 4.
	Concurrency int
	// PublishTimeout is how long Publish may take. Defaults to 10 s.
	PublishTimeout time.Duration
	// Lease is how long messages are kept from other relays, by the store's clock. If a relay dies, its messages wait
	// for so long. At least twice PublishTimeout. Defaults to 30 s, or three times PublishTimeout if that is longer.
	Lease time.Duration
	// MaxAttempts is how often sending a message may fail until it is dead. Negative means no limit. Defaults to 25: with
	// the default Backoff a message dies half a day to a day after it failed first.
	MaxAttempts int
	// Backoff is how long a message waits after so many failed attempts, 1 or more. A [RetryAfter] counts if it is
	// longer. Defaults to 1 s, doubled with each attempt up to 1 h, less up to a half at random.
	Backoff func(attempts int) time.Duration
	// HoldKey says that a dead message keeps the later messages of its key back until an operator requeues or drops it.
	// Defaults to false: they are sent.
	HoldKey bool
	// Rate is how many messages this relay sends in a second at most. Defaults to no limit.
	Rate float64
	// Observe is told what an operator may want to know. It is called concurrently and must not block. Defaults to nobody.
	Observe func(Event)
}

// Times of a relay.
const (
	pollFirst   = 25 * time.Millisecond  // the time between two looks into the store,
	pollLongest = 500 * time.Millisecond // growing to this while there is nothing to do
	pollBehind  = 100 * time.Millisecond // or at least this, while the rest is likely to be behind what is being sent
	gather      = 5 * time.Millisecond   // after a look that has found less than a batch, or as long as that took
	storePause  = 5 * time.Second        // the longest time between two looks into a store that fails
	storeTime   = 10 * time.Second       // for one call of the store
	lanePause   = time.Second            // the first pause of a lane in which everything fails,
	laneLongest = time.Minute            // growing to this
	cleanEvery  = time.Minute
	cleanChunk  = 1000
)

// topicsAtOnce times Concurrency is how many batches are with the Publisher at once at most.
const topicsAtOnce = 16

// NewRelay returns a relay. Nothing is started; see [Relay.Run].
func NewRelay(s Store, p Publisher, o RelayOptions) (*Relay, error) {
	var f settings.Faults
	f.If(s == nil, "the store is nil")
	f.If(p == nil, "the publisher is nil")
	settings.Fill(&f, "Batch", &o.Batch, 512)
	settings.Fill(&f, "Bytes", &o.Bytes, 8<<20)
	settings.Fill(&f, "Concurrency", &o.Concurrency, 4)
	settings.Fill(&f, "PublishTimeout", &o.PublishTimeout, 10*time.Second)
	settings.Fill(&f, "Lease", &o.Lease, max(30*time.Second, 3*o.PublishTimeout))
	f.If(o.Lease < 2*o.PublishTimeout,
		"Lease is %v, want at least twice PublishTimeout, which is %v", o.Lease, o.PublishTimeout)
	f.If(!(o.Rate >= 0) || math.IsInf(o.Rate, 0), "Rate is %v, want messages in a second, or 0 for no limit", o.Rate)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 25)
	if o.Backoff == nil {
		o.Backoff = func(attempts int) time.Duration {
			return pause.Jitter(pause.Backoff(time.Second, time.Hour, attempts))
		}
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("outbox: new relay: %w", err)
	}
	return &Relay{store: s, publisher: p, o: o}, nil
}

// Run sends messages until ctx ends, and then returns nil. Errors of the store and of the publisher do not end it. At
// the end it waits for what is with the Publisher and puts the rest back. If a Publisher does not return although its
// context has ended, Run returns an error, and leaves the messages to other relays.
func (r *Relay) Run(ctx context.Context) error {
	var helpers sync.WaitGroup
	defer helpers.Wait()
	helpers.Go(func() { r.clean(ctx) })
	if l, ok := r.store.(Listener); ok {
		helpers.Go(func() { r.listen(ctx, l) })
	}
	s := &shift{
		relay: r, ended: make(chan ended, topicsAtOnce*r.o.Concurrency), busy: map[string]int{}, lanes: map[Lane]*laneState{},
		throttle: throttle{rate: r.o.Rate},
	}
	s.work(ctx)
	return s.finish()
}

// A shift is what a relay knows while it runs. One goroutine uses it.
type shift struct {
	relay    *Relay
	ended    chan ended // has room for all batches
	running  int
	enough   int            // with so many batches under way a look found little, as the rest was behind; 0 is not known
	busy     map[string]int // batches of a topic
	lanes    map[Lane]*laneState
	after    Lane
	throttle throttle
}

// ended is what a batch reports when all is settled.
type ended struct {
	lane  Lane
	state laneEnd
}

func (s *shift) work(ctx context.Context) {
	idle, failed := pollFirst, 0
	for ctx.Err() == nil {
		changed, ends, began := s.relay.store.Changed(), s.ended, time.Now()
		n, err := s.lease(ctx)
		switch {
		case errors.Is(err, ErrBusy):
			changed, ends, idle = nil, nil, pollLongest
		case err != nil:
			failed++
			s.relay.storeFailed("lease", err)
			pause.For(ctx, pause.Jitter(pause.Backoff(pollFirst, storePause, failed)))
			continue
		case n > 0:
			failed, idle = 0, pollFirst
			switch full := s.relay.o.Batch; {
			case n >= full && (s.enough == 0 || s.running < s.enough):
				continue
			case n >= full:
				idle = max(pollBehind, 4*time.Since(began))
			default:
				// There is not more, or the rest is behind what is being sent, perhaps by other relays: let it become
				// more.
				changed, idle = nil, max(gather, time.Since(began))
				if n < full/2 {
					ends = nil
				}
			}
		default:
			// A look that took long for nothing has read what others send.
			idle = max(idle, min(8*time.Since(began), pollLongest))
		}
		failed = 0
		timer := time.NewTimer(s.sleep(idle))
		select {
		case <-ctx.Done():
		case <-changed:
			idle = pollFirst
		case e := <-ends:
			s.end(e)
		case <-timer.C:
			idle = max(pollFirst, min(2*idle, pollLongest))
		}
		timer.Stop()
	}
}

// sleep returns for how long nothing will have to be done, unless something changes.
func (s *shift) sleep(idle time.Duration) time.Duration {
	if w := s.throttle.wait(); w > 0 {
		idle = w
	}
	for _, l := range s.lanes {
		if left := time.Until(l.until); left > 0 {
			idle = min(idle, left)
		}
	}
	return idle
}

// lease leases what there is room for, and starts a goroutine for each lane of it. It returns how many messages that are.
func (s *shift) lease(ctx context.Context) (int, error) {
	for len(s.ended) > 0 {
		s.end(<-s.ended)
	}
	o := &s.relay.o
	room := min(cap(s.ended)-s.running, o.Concurrency) // of lanes, which may all be of the topic that has the least room
	var full []string
	for topic, n := range s.busy {
		if n >= o.Concurrency {
			full = append(full, topic)
		} else {
			room = min(room, o.Concurrency-n)
		}
	}
	most := s.throttle.allows(room * o.Batch)
	if room == 0 || most == 0 {
		return 0, nil
	}
	q := LeaseRequest{
		Token: driver.NewToken(), Lease: o.Lease, After: s.after, Lanes: room, Limit: o.Batch, Max: most, Bytes: o.Bytes,
		Skip: full, Limits: s.limits(),
	}
	leased := time.Now()
	// A call that is cut off may have leased all the same, so the end of ctx leaves it its time.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	all, err := s.relay.store.Lease(call, q)
	if err != nil {
		return 0, err
	}
	s.throttle.took(len(all))
	switch few := len(all) < o.Batch/2; {
	case few && s.running > 0:
		s.enough = s.running
	case !few && s.running >= s.enough:
		s.enough = 0
	}
	for rest := all; len(rest) > 0; {
		lane, n := rest[0].Lane(), 1
		for n < len(rest) && rest[n].Lane() == lane {
			n++
		}
		b := &batch{relay: s.relay, lane: lane, token: q.Token, until: leased.Add(o.Lease), rest: rest[:n]}
		rest = rest[n:]
		s.after = lane
		s.running++
		s.busy[lane.Topic]++
		if l := s.lanes[lane]; l != nil {
			l.probing = true
		}
		go func() { s.ended <- ended{lane, b.send(ctx)} }()
	}
	return len(all), nil
}

// finish waits for what is with the Publisher.
func (s *shift) finish() error {
	timeout := time.NewTimer(s.relay.o.PublishTimeout + 2*storeTime)
	defer timeout.Stop()
	for s.running > 0 {
		select {
		case e := <-s.ended:
			s.end(e)
		case <-timeout.C:
			return fmt.Errorf("outbox: relay: %d batches are still with the publisher, %v after the end", s.running, s.relay.o.PublishTimeout+2*storeTime)
		}
	}
	return nil
}

func (s *shift) end(e ended) {
	s.running--
	if s.busy[e.lane.Topic]--; s.busy[e.lane.Topic] == 0 {
		delete(s.busy, e.lane.Topic)
	}
	s.note(e.lane, e.state)
}

// clean deletes what was sent and kept long enough.
func (r *Relay) clean(ctx context.Context) {
	for pause.For(ctx, pause.Jitter(cleanEvery)) {
		for ctx.Err() == nil {
			n, err := r.store.Clean(ctx, cleanChunk)
			if err != nil && ctx.Err() == nil {
				r.storeFailed("clean", err)
			}
			if err != nil || n < cleanChunk {
				break
			}
		}
	}
}

// listen hears of messages that other processes add.
func (r *Relay) listen(ctx context.Context, l Listener) {
	for tries := 1; ; tries++ {
		began := time.Now()
		err := l.Listen(ctx)
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return
		}
		r.storeFailed("listen", err)
		if time.Since(began) > time.Minute {
			tries = 1
		}
		pause.For(ctx, pause.Jitter(pause.Backoff(lanePause, laneLongest, tries)))
	}
}
