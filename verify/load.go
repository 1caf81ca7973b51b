package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/semelhq/semel/history"
)

// LoadOptions say what to put on a target: requests that come at their times whether or not the target keeps up, of
// which some repeat an operation that was asked for before.
type LoadOptions struct {
	// Rate is how many requests come a second, above 0 and at most 100 000. Retries come on top.
	Rate float64
	// Duration is how long requests come.
	Duration time.Duration
	// Faults is which part of the attempts meets a fault of the network, 0 to 1, until Duration is over.
	Faults float64
	// Seed decides what is repeated, and which attempt meets which fault. Defaults to a random one; the report has it.
	Seed uint64
	// Deadline is how long a request is asked again until it gets a definite answer. Defaults to 30 s.
	Deadline time.Duration
	// InFlight is how many requests may be under way. Further ones are not sent, and count as failed. Defaults to 512.
	InFlight int
}

const (
	maxRate         = 100_000
	defaultDeadline = 30 * time.Second
	defaultInFlight = 512
	maxBehind       = 5 * time.Second // requests that could only be sent later than that are not sent

	retryBase     = 100 * time.Millisecond
	retryMost     = 2 * time.Second
	retryAfterMax = 5 * time.Second // a client that is told a longer time comes back early

	progressEvery = 250 * time.Millisecond
	countPoll     = 250 * time.Millisecond
	countLimit    = 5 * time.Second
	maxAsked      = 100 // keys without a definite answer that are asked once more at the end
)

func (o *LoadOptions) complete() error {
	switch {
	case !(o.Rate > 0 && o.Rate <= maxRate):
		return fmt.Errorf("a rate of %v a second is not above 0 and at most %d", o.Rate, maxRate)
	case o.Duration <= 0:
		return fmt.Errorf("a duration of %v is not above 0", o.Duration)
	case !(o.Faults >= 0 && o.Faults <= 1):
		return fmt.Errorf("faults for a part of %v: it is not between 0 and 1", o.Faults)
	case o.Deadline < 0 || o.InFlight < 0:
		return errors.New("a deadline and a number of requests in flight can't be negative")
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	if o.InFlight == 0 {
		o.InFlight = defaultInFlight
	}
	return nil
}

// A loader puts a load on a target.
type loader struct {
	*target
	LoadOptions
	network *network // nil without faults
	began   time.Time
	before  int // effects, if they can be counted

	mu         sync.Mutex
	history    history.History
	operations []*loaded // by number; nil for one that was not asked for
	requests   []*asked
	attempts   []attempt
	effects    map[string]int // the operation that first told of an effect
	unseen     error          // why an answer did not tell of its effect
	crowded    int            // requests that were not sent because too many were under way
	late       int            // and because it was too late
}

// A loaded operation is one of a load.
type loaded struct {
	number  int
	key     string
	request request

	final  meaning // of the first definite answer; noAnswer if there is none
	value  string  // of it
	seen   int     // effects
	broken []string
}

// asked is a request that was asked for, with all its attempts.
type asked struct {
	planned
	operation *loaded // nil if it was not sent
	tries     int     // attempts
	end       meaning // of the last answer
	value     string  // of the last answer
	last      string  // what came last
}

// An attempt is one exchange.
type attempt struct {
	operation *loaded
	request   int
	n         int
	call      int // of the history
	at, took  time.Duration
	kind      meaning
	fault     string
	came      string
}

// load puts a load on the target and says what came of it. It tells about its progress while it lasts, from one
// goroutine; tell may be nil. With an error that is not about the options the Load is what came of it until then.
//
// When the last request has come faults are over. Requests that have no definite answer yet are asked again until their
// deadline, and keys that have none even then once more, until their leases must be over.
func (t *target) load(ctx context.Context, o LoadOptions, tell func(done time.Duration, operations int)) (Load, error) {
	if err := o.complete(); err != nil {
		return Load{}, err
	}
	l := &loader{target: t, LoadOptions: o, effects: map[string]int{}}
	if o.Faults > 0 {
		var err error
		if l.network, err = newNetwork(ctx, t.wire); err != nil {
			return Load{}, err
		}
		defer l.network.close()
	}
	if !t.scenario.Effects.byAnswers() {
		var err error
		if l.before, err = l.countAtRest(ctx); err != nil {
			return Load{}, err
		}
	}
	l.began = time.Now()
	stop := l.watch(tell)
	l.send(ctx)
	l.askStuck(ctx)
	stop()
	effects, err := l.counted(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("the load was ended: %w", context.Cause(ctx))
	}
	return l.result(effects), err
}

// watch tells about the progress until it is stopped.
func (l *loader) watch(tell func(time.Duration, int)) (stop func()) {
	if tell == nil {
		return func() {}
	}
	var watching sync.WaitGroup
	over := make(chan struct{})
	watching.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			l.mu.Lock()
			n := len(l.operations)
			l.mu.Unlock()
			tell(min(time.Since(l.began), l.Duration), n)
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(over)
		watching.Wait()
	}
}

// send sends the requests of the schedule at their times, and returns when the last one has ended.
func (l *loader) send(ctx context.Context) {
	var underWay sync.WaitGroup
	defer underWay.Wait()
	slots := make(chan struct{}, l.InFlight)
	plan := newSchedule(l.LoadOptions)
	for p, ok := plan.take(); ok; p, ok = plan.take() {
		behind := time.Since(l.began) - p.at
		if sleep(ctx, -behind); ctx.Err() != nil {
			return
		}
		if behind > maxBehind {
			l.leaveOut(p, &l.late)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			l.leaveOut(p, &l.crowded)
			continue
		}
		r := l.ask(p)
		underWay.Go(func() {
			l.settle(ctx, r)
			<-slots
		})
	}
}

// ask returns a request that is to be sent.
func (l *loader) ask(p planned) *asked {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.operations) <= p.operation {
		l.operations = append(l.operations, nil)
	}
	o := l.operations[p.operation]
	if o == nil {
		made := l.scenario.newOperation("")
		o = &loaded{number: p.operation, key: made.key, request: made.request()}
		l.operations[p.operation] = o
		p.repeat = false // its first request was not sent
	}
	r := &asked{planned: p, operation: o}
	l.requests = append(l.requests, r)
	return r
}

// leaveOut notes a request that is not sent.
func (l *loader) leaveOut(p planned, why *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, &asked{planned: p})
	*why++
}

// settle asks as a good client does: again, with the same key and bytes, until an answer is definite or the deadline
// has passed.
func (l *loader) settle(ctx context.Context, r *asked) {
	limit := time.Now().Add(l.Deadline)
	for {
		fault := ""
		if time.Since(l.began) < l.Duration {
			fault = l.fault(r.index, r.tries+1)
		}
		a := l.exchange(ctx, r, fault, l.history.Ask)
		left := time.Until(limit)
		if r.end.definite() || left <= 0 || ctx.Err() != nil {
			return
		}
		sleep(ctx, min(left, backoff(r.tries, a.header)))
	}
}

// definite reports whether asking again is of no use.
func (m meaning) definite() bool { return m != noAnswer && m != busy && m != later }

// backoff returns how long to wait after an attempt: full jitter, and not less than the target has asked for.
func backoff(attempt int, h http.Header) time.Duration {
	most := min(retryMost, retryBase<<min(attempt-1, 10))
	return max(rand.N(most), min(retryAfter(h), retryAfterMax))
}

// retryAfter returns the time of Retry-After (RFC 9110 section 10.2.3), or 0.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// askStuck asks once more for keys that have no definite answer, when nothing else is under way, until their leases
// must be over.
func (l *loader) askStuck(ctx context.Context) {
	var stuck []*asked
	for _, r := range l.requests {
		if r.operation != nil && !r.repeat && r.operation.final == noAnswer && len(stuck) < maxAsked {
			again := *r
			stuck = append(stuck, &again)
		}
	}
	limit := time.Now().Add(time.Duration(l.scenario.Lease))
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, r := range stuck {
		asking.Go(func() {
			for ctx.Err() == nil {
				left := time.Until(limit)
				ask := l.history.Ask
				if left <= 0 {
					ask = l.history.AskLast
				}
				a := l.exchange(ctx, r, "", ask)
				if left <= 0 || r.end.definite() {
					return
				}
				sleep(ctx, min(max(0, time.Until(limit)), backoff(r.tries, a.header)))
			}
		})
	}
}

// counted returns how many effects the load had, or -1.
func (l *loader) counted(ctx context.Context) (int, error) {
	if l.scenario.Effects.byAnswers() {
		if len(l.effects) == 0 && l.unseen != nil {
			return -1, fmt.Errorf("effects can't be counted: %w", l.unseen)
		}
		return len(l.effects), nil
	}
	n, err := l.countAtRest(ctx)
	if err != nil {
		return -1, err
	}
	return n - l.before, nil
}

// countAtRest counts effects when they have ceased to grow: runs whose clients have left may still be under way.
func (l *loader) countAtRest(ctx context.Context) (int, error) {
	end := time.Now().Add(countLimit)
	for previous := -1; ; sleep(ctx, countPoll) {
		n, err := l.count(ctx)
		if err != nil || n == previous || time.Now().After(end) {
			return n, err
		}
		previous = n
	}
}

// sleep waits, unless the context ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}
