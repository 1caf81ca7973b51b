package semel

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/credentials"
	"github.com/semelhq/semel/internal/storedrequest"
)

// A resumption is carried in the context of a completer's request to the guard of its route. It holds the identity that
// the request had when its client sent it. Scope, key and fingerprint are not made again, so that they are the same
// even if the route's settings have changed.
type resumption struct {
	core    *core
	id      driver.ID
	rec     driver.Record // as it was read just before, when its operation was due
	request *storedrequest.Request

	taken atomic.Bool // by the first guard: others, to which a handler passes its context, must not take it

	mu  sync.Mutex
	err error // why the request was not run
}

type resumptionKey struct{}

// takeResumption returns the resumption that a request over HTTP is meant for, or nil.
func takeResumption(ctx context.Context) *resumption {
	s, _ := ctx.Value(resumptionKey{}).(*resumption)
	if s == nil || s.request.Kind != "" || s.taken.Swap(true) {
		return nil
	}
	return s
}

// mayResume returns a policy for a run without its client, or why there can't be one.
func (s *resumption) mayResume(g *Guard) (p policy, err error) {
	p = *g.policy
	switch {
	case g.core != s.core:
		return p, errors.New("the guard of its route is not one of the completer's")
	case p.OnLost != Rerun, p.OneCommit, p.ObserveOnly:
		return p, errNoLongerRun
	}
	p.Patience = 0
	p.Retention, p.Tombstone = max(s.rec.Retention, p.MaxRun+p.Lease), s.rec.Tombstone // as promised to its client
	return p, nil
}

var errNoLongerRun = errors.New("the policy of its route no longer allows to run it again")

func (s *resumption) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *resumption) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// continues reports whether the run that a claim has started goes on with the operation that was due. rec is the record
// after the claim. A claim also wins a free record, owed or not, and one that was forgotten meanwhile. Being owed
// lasts, and the claim of a lapsed record makes the operation owed. So Owed proves that nobody has ended the operation
// with an answer to its client.
func (s *resumption) continues(rec *driver.Record) bool {
	return rec.Created == s.rec.Created && rec.Owed
}

// resume runs next for a completer. The exchange is like that of any request, except that no client is there: nobody is
// told anything, and nobody waits.
func (g *Guard) resume(s *resumption, next http.Handler, w http.ResponseWriter, r *http.Request) {
	p, err := s.mayResume(g)
	if err == nil && !p.protects(r) {
		err = errNoLongerRun
	}
	if err != nil {
		s.fail(err)
		return
	}
	own := &Guard{core: g.core, policy: &p, route: g.route.With(p.engine())}
	x := &execution{exchange: exchange{request: request{g: own, started: time.Now()}, w: w, r: r, alone: true}}
	defer func() {
		if x.run == nil {
			x.closeBody()
		}
	}()
	x.correlate()
	x.keyHeader, x.keyValue = s.request.KeyHeader, s.request.KeyValue
	x.ask.kind, x.ask.scope, x.ask.key, x.ask.ID = KindHTTP, s.request.Scope, s.request.Key, s.id
	x.ask.Fingerprint, x.ask.credentials = s.rec.Fingerprint, credentials.Stored(s.request.Header)
	if x.ask.Operation = p.Operation; x.ask.Operation == "" {
		x.ask.Operation = operationName(r)
	}
	if problem := x.readBody(); problem != nil {
		s.fail(problem)
		x.refuse(problem)
		return
	}
	x.keyedHeaders(w.Header())
	run, refused := own.route.Claim(r.Context(), &x.ask.Ask, &x.rec)
	switch {
	case refused != nil:
		problem := own.refusedBy(refused)
		s.fail(problem)
		x.refuse(problem)
	case run == nil: // another claimant was faster
	case !s.continues(&x.rec):
		run.Unstarted()
	default:
		run.Promise()
		x.run = run
		x.execute(next)
	}
}
