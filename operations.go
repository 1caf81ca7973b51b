package semel

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/keyformat"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/operationstatus"
	"github.com/semelhq/semel/refusal"
)

// Operations tells principals what became of their own operations. An operation of another principal, or of another
// kind than an HTTP request, is answered like one that never existed. Below [Options].Operations it answers GET and
// HEAD of
//
//   - /{id}, an operation's public id: its status, a JSON document with the member state, which is running, succeeded,
//     failed, unknown or expired;
//   - the path itself, with a key in one of the policy's KeyHeaders: the same, for a client that has lost the id
//     together with its answer. An operation whose method and path are part of its identity (PerOperation) is found by
//     its id only;
//   - /{id}/result: the stored answer, marked as a replay. A Location is as the handler wrote it, here and in the
//     status; a relative one is relative to the first request.
//
// Mount it at the path and below it, under the layer that authenticates the principal:
//
//	mux.Handle("/operations", operations)
//	mux.Handle("/operations/", operations)
//
// If a proxy changes the path that clients use, http.StripPrefix takes off the part that was added.
//
// The policy is that of the guard on which Operations is called. Its AuthorizeReplay is asked before more of a stored
// answer is shown than its status, whatever the route of the operation has. If this policy has none, and that of a
// route has one, only the status is shown. If the policy of any route has Credentials, the end of an operation is told
// only to a request with the credentials of its first request, or if AuthorizeReplay allows it; others get 403
// replay-forbidden. A client that asks about too many operations that are unknown, or another caller's, gets 429
// ([Options].MaxAttempts). Operations panics without [Options].Operations.
func (g *Guard) Operations() http.Handler {
	if g.path == "" {
		panic("semel: operations: Options.Operations does not say where they are asked about")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{request: request{g: g, started: time.Now()}, w: w, r: r, question: true}
		x.tellOperation()
	})
}

// linkTo is the path at which a client can ask about an operation.
func (c *core) linkTo(id driver.ID) string {
	return (&url.URL{Path: c.path}).EscapedPath() + "/" + id.String()
}

// linked adds a link to a refusal that leaves the outcome open: the path at which the client can ask about the
// operation. It adds none in one-commit mode. There the operation has no record until the commit, and would look as if
// it had never existed.
func (x *exchange) linked(p *Problem) {
	switch p.Code {
	case refusal.InProgress, refusal.OutcomePending, refusal.OutcomeUnknown, refusal.NoAnswer:
		if x.g.path != "" && x.ask.ID != (driver.ID{}) && !x.g.policy.OneCommit {
			p.Operation = x.g.linkTo(x.ask.ID)
		}
	}
}

// tellOperation answers a question about an operation.
func (x *exchange) tellOperation() {
	h := x.w.Header()
	h["Cache-Control"] = []string{"no-store"}
	x.correlate()
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(x.w, "operations are only asked about", http.StatusMethodNotAllowed)
		return
	}
	path := x.r.URL.Path
	if below, ok := strings.CutPrefix(path, x.g.path); ok {
		path = below
	}
	name := strings.TrimPrefix(path, "/")
	var result bool
	if len(name) > len("/result") {
		name, result = strings.CutSuffix(name, "/result")
	}
	rec, p := x.find(name)
	switch {
	case p != nil:
		x.tell(p)
	case result:
		x.tellResult(&rec)
	default:
		x.tellStatus(&rec)
	}
}

// find returns the record of an operation of the request's principal. name is its public id; if it is empty, the
// request's key says which operation.
func (x *exchange) find(name string) (driver.Record, *Problem) {
	g, byKey := x.g, name == ""
	var key string
	if byKey {
		var p *Problem
		if key, p = x.headerKey(); p != nil {
			return driver.Record{}, p
		}
		if key == "" {
			return driver.Record{}, g.problem(refusal.KeyMissing, "send that of the operation in the header "+strings.Join(g.policy.KeyHeaders, " or "))
		}
	}
	scope, err := g.scope.of(x.r)
	if err != nil || scope == "" {
		return driver.Record{}, x.noPrincipal("it asks about an operation, but not whose", err)
	}
	if refused := g.engine.KnowsSecret(x.r.Context()); refused != nil {
		return driver.Record{}, g.refusedBy(refused) // under another secret no operation is found
	}
	x.asker = &engine.Attempt{ID: g.identity.ID(string(KindHTTP), scope, ""), Credentials: peerOf(x.r.RemoteAddr)}
	if left := g.guesses.Look(*x.asker, x.started); left > 0 {
		p := g.problem(refusal.TooManyAttempts, "too many of the operations that were asked about are unknown, or another caller's")
		p.Title, p.RetryAfter = "too many questions about unknown operations", engine.WholeSeconds(left)
		return driver.Record{}, p
	}
	rec, p := driver.Record{}, g.problem(refusal.OperationNotFound, "")
	if byKey {
		rec, p = x.findByKey(scope, key)
	} else if x.ask.ID, err = driver.ParseID(name); err == nil && x.ask.ID.Scope() == g.identity.Scope(string(KindHTTP), scope) {
		rec, p = x.loadKnown()
	}
	if p != nil && p.Code == refusal.OperationNotFound {
		x.missed()
	}
	return rec, p
}

// missed counts a question about an operation that the asker can't have: this limits how often keys and ids can be
// guessed.
func (x *exchange) missed() { x.g.guesses.Count(*x.asker, x.started) }

// peerOf names the network from which a connection comes: its address, or for IPv6 the first 64 bits, because an IPv6
// client has many addresses.
func peerOf(remote string) string {
	addr := network.Peer(remote)
	if !addr.IsValid() {
		return remote
	}
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}

// findByKey returns the record of a key. Where any text is a key, a UUID may also have been sent to a route on which
// its case does not count.
func (x *exchange) findByKey(scope, key string) (rec driver.Record, p *Problem) {
	for _, k := range slices.Compact([]string{key, (&keyformat.Format{UUID: keyformat.UUIDAny}).Compared(key)}) {
		x.ask.ID = x.g.identity.ID(string(KindHTTP), scope, k)
		if rec, p = x.loadKnown(); p == nil || p.Code != refusal.OperationNotFound {
			break
		}
	}
	return rec, p
}

// loadKnown reads the record. It refuses the request if there is none.
func (x *exchange) loadKnown() (driver.Record, *Problem) {
	g := x.g
	rec, p := x.load()
	if p == nil && rec.Reads(rec.OnLost) == driver.ReadsAbsent {
		p = g.problem(refusal.OperationNotFound, "")
	}
	return rec, p
}

func (x *exchange) load() (rec driver.Record, p *Problem) {
	g := x.g
	rec, err := g.engine.Load(x.r.Context(), x.ask.ID)
	if err == nil {
		return rec, nil
	}
	if errors.Is(err, driver.ErrUnreadable) {
		p = g.problem(refusal.ReplayUnavailable, "its record can't be read")
	} else {
		p = g.problem(refusal.StoreUnavailable, "")
	}
	p.Title = "what became of the operation can't be told"
	return driver.Record{}, p.because(err)
}

func (c *core) newOperationStatus(id driver.ID) *operationstatus.Status {
	self := c.linkTo(id)
	return &operationstatus.Status{ID: id.String(), Links: operationstatus.Links{Self: self, Result: self + "/result"}}
}

// goesOn reports whether the operation has not ended. Either it runs; or its request is stored and its run was lost or
// was promised an end, so that it is finished without its client.
func goesOn(rec *driver.Record) bool {
	switch rec.Reads(rec.OnLost) {
	case driver.ReadsRunning:
		return true
	case driver.ReadsFree:
		return len(rec.Sealed) > 0 && rec.OnLost == Rerun && (rec.State == driver.Running || rec.Owed)
	}
	return false
}

func (x *exchange) tellStatus(rec *driver.Record) {
	s := x.g.newOperationStatus(x.ask.ID)
	s.Attempts, s.Created, s.Started, s.Ended = rec.Attempt, rec.Created.Time(), rec.Started.Time(), rec.Settled.Time()
	switch reads := rec.Reads(rec.OnLost); {
	case goesOn(rec):
		s.State, s.Ended = operationstatus.Running, time.Time{}
		x.w.Header().Set("Retry-After", strconv.Itoa(int(engine.RetryAfter(rec)/time.Second)))
	case reads == driver.ReadsFree:
		s.State, s.Retryable, s.Detail = operationstatus.Failed, true, "no outcome was kept; the same key runs it again"
		if rec.Maybe || rec.State == driver.Running {
			s.Detail = "no outcome was kept, but it may have taken effect: run it again with the same key only"
		}
	case reads == driver.ReadsDone:
		if p := x.tellEnded(s, rec); p != nil {
			if p.Code == refusal.ReplayForbidden {
				x.missed()
			}
			x.tell(p)
			return
		}
	case reads == driver.ReadsExpired:
		s.State, s.Detail = operationstatus.Expired, "it has ended, and its answer is no longer kept"
	default:
		s.State, s.Detail = operationstatus.Unknown, "it may have taken effect; its operator has to decide"
	}
	if x.keyHeader != "" {
		x.keyedHeaders(x.w.Header())
	}
	s.Write(x.w, http.StatusOK)
}

// tellEnded tells how an operation has ended, according to the stored answer.
func (x *exchange) tellEnded(s *operationstatus.Status, rec *driver.Record) *Problem {
	if rec.State == driver.Done && rec.Retention < Forever/2 {
		s.Expires = rec.Kept().Time()
		x.setOwn(x.w.Header(), x.g.headers.expires, x.g.dates.Format(rec.Kept().Time()))
	}
	if rec.Response == nil {
		s.State, s.Detail = operationstatus.Unknown, "it has ended, but with which answer can't be told"
		return nil
	}
	if s.State = operationstatus.Succeeded; rec.Response.Status >= http.StatusBadRequest {
		s.State = operationstatus.Failed
	}
	answer, err := x.g.engine.OpenAnswer(x.r.Context(), x.ask.ID, rec)
	if err != nil {
		x.g.engine.Failed(x.r.Context(), "replay", x.ask.ID, err)
		s.Detail = "its answer can't be given again"
		return nil
	}
	err = x.mayHave(answer)
	if err != nil && x.compares() {
		return x.withheld(err)
	}
	if s.State = operationstatus.Succeeded; answer.Status >= http.StatusBadRequest {
		s.State = operationstatus.Failed // the status in the clear may have been written by somebody else
	}
	s.Result = &operationstatus.Result{Status: answer.Status, Href: s.Links.Result}
	if err == nil {
		s.Result.Location = answer.Header.Get("Location")
	}
	return nil
}

// tellResult replays the stored answer, or says why there is none.
func (x *exchange) tellResult(rec *driver.Record) {
	g := x.g
	var p *Problem
	switch reads := rec.Reads(rec.OnLost); {
	case reads == driver.ReadsDone:
		if _, p = x.giveAgain(rec); p != nil && p.Code == refusal.ReplayForbidden {
			x.missed()
		}
	case goesOn(rec):
		p = g.refusedBy(engine.InProgress(rec))
	case reads == driver.ReadsFree:
		p = g.problem(refusal.ReplayUnavailable, "no outcome was kept; the same key runs it again")
		p.Title = "the operation has no answer"
	case reads == driver.ReadsExpired:
		p = g.problem(refusal.ReplayUnavailable, "it is no longer kept")
	default:
		p = g.problem(refusal.OutcomeUnknown, "")
	}
	if p != nil {
		x.tell(p)
	}
}
