package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/thrown"
)

// A line is where callers meet who ask at the same time, so that what they ask goes to the server in one command. That
// spares both sides most of what a command costs. A few commands are under way at once, each for one caller as long as
// there is a place. Who comes then waits until one of them is back, and goes with all others who wait.
//
// If a command for several fails, each of them asks alone: whatever of it was executed can be repeated. So does
// everybody for a moment after that: the server may be a Cluster's, or its user may not do that.
type line struct {
	alone    func(context.Context, *question) (text string, ok bool, err error)
	together func(context.Context, []*waiter) (reply any, err error) // with a part for each

	apart    atomic.Bool // nobody meets
	mu       sync.Mutex
	underWay int // commands; as many as there may be, if anybody waits
	waiting  []*waiter
	late     *time.Timer // of those who wait; nil if nobody ever did
	unused   sync.Pool   // of waiters
}

// A question is about one key. Its answer is a text or a null.
type question struct {
	key   string
	head  string // the beginning of the frame that a settle must find; "" for a claim
	frame string // what is stored
	px    string // in how many milliseconds the key ends; "" if never
	told  string // what is published
}

const (
	// mostUnderWay is how many commands are under way before callers wait: on average for such a part of a trip.
	mostUnderWay = 4
	// longest is how long a caller waits for a command that is under way.
	longest = 20 * time.Millisecond
	// mostTogether is how many questions go in one command. The server does nothing else meanwhile.
	mostTogether = 64
	// aloneBytes is how large a frame has to be to go alone.
	aloneBytes = 16 << 10
	// apartFor is for how long everybody asks alone where a command for several has failed.
	apartFor = time.Second
)

// A waiter is a caller in the line.
type waiter struct {
	question
	group *group // nil until it is taken
	text  string
	ok    bool // the answer is no null
	turn  turn
	told  chan struct{} // gets one
}

type turn uint8

const (
	turnOver  turn = iota // there is an answer
	turnLead              // ask alone: the place of a command is yours
	turnAlone             // ask alone: the command for several has brought no answer
)

// ask returns the answer. It returns soon after ctx has ended.
func (l *line) ask(ctx context.Context, q question) (text string, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return "", false, err
	}
	if len(q.frame) >= aloneBytes || l.apart.Load() {
		return l.alone(ctx, &q)
	}
	w := l.enter(&q)
	if w == nil {
		defer l.back()
		return l.alone(ctx, &q)
	}
	if !l.wait(ctx, w) {
		return "", false, ctx.Err()
	}
	text, ok, turn := w.text, w.ok, w.turn
	*w = waiter{told: w.told}
	l.unused.Put(w)
	switch turn {
	case turnOver:
		return text, ok, nil
	case turnLead:
		defer l.back()
	}
	return l.alone(ctx, &q)
}

// enter takes a place; or it returns what waits for one.
func (l *line) enter(q *question) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay < mostUnderWay {
		l.underWay++
		return nil
	}
	w, _ := l.unused.Get().(*waiter)
	if w == nil {
		w = &waiter{told: make(chan struct{}, 1)}
	}
	w.question = *q
	l.waiting = append(l.waiting, w)
	if len(l.waiting) == 1 {
		l.await()
	}
	return w
}

// await has those who wait sent in time, whatever is under way. It is called with the lock held.
func (l *line) await() {
	if l.late == nil {
		l.late = time.AfterFunc(longest, l.overtake)
	} else {
		l.late.Reset(longest)
	}
}

func (l *line) overtake() {
	l.mu.Lock()
	l.underWay++
	l.mu.Unlock()
	l.back()
}

// back gives the place of a command that is back to those who wait.
func (l *line) back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := min(len(l.waiting), mostTogether); n {
	case 0:
		l.underWay--
		return
	case 1:
		w := l.waiting[0]
		w.turn = turnLead
		w.told <- struct{}{}
		l.waiting = l.waiting[:0]
	default:
		g := newGroup(slices.Clone(l.waiting[:n]))
		l.waiting = slices.Delete(l.waiting, 0, n)
		go l.send(g)
	}
	if len(l.waiting) > 0 {
		l.await()
	} else {
		l.late.Stop()
	}
}

// wait reports whether it is the waiter's turn before ctx ends.
func (l *line) wait(ctx context.Context, w *waiter) bool {
	over := ctx.Done()
	if over == nil {
		<-w.told
		return true
	}
	select {
	case <-w.told:
		return true
	case <-over:
	}
	l.mu.Lock()
	i := slices.Index(l.waiting, w)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.mu.Unlock()
	if i >= 0 {
		return false
	}
	select {
	case <-w.told:
		if w.turn == turnLead {
			l.back()
			return false
		}
		return true
	default:
		w.group.leave()
		return false
	}
}

// A group is sent together. It goes on until the last of its callers has left.
type group struct {
	all  []*waiter
	ctx  context.Context
	end  context.CancelFunc
	here atomic.Int64
}

func newGroup(all []*waiter) *group {
	g := &group{all: all}
	g.ctx, g.end = context.WithCancel(context.Background())
	g.here.Store(int64(len(all)))
	for _, w := range all {
		w.group, w.turn = g, turnAlone
	}
	return g
}

func (g *group) leave() {
	if g.here.Add(-1) == 0 {
		g.end()
	}
}

// send asks for a group. What a client does to this goroutine leaves no caller behind.
func (l *line) send(g *group) {
	failed := true
	defer func() {
		if failed && !l.apart.Swap(true) {
			time.AfterFunc(apartFor, func() { l.apart.Store(false) })
		}
		g.end()
		for _, w := range g.all {
			w.told <- struct{}{}
		}
		runtime.Gosched() // they may have more to ask, which then goes together too
		l.back()
	}()
	var thrownAway error // each of them asks again, and meets it by itself
	defer thrown.Catch(&thrownAway)
	reply, err := l.together(g.ctx, g.all)
	parts, _ := reply.([]any)
	if err != nil || len(parts) != len(g.all) {
		return
	}
	failed = false
	for i, w := range g.all {
		w.text, w.ok = textOf(parts[i])
		if w.ok || parts[i] == nil {
			w.turn = turnOver
		}
	}
}
