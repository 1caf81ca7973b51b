package semel

import (
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/operationstatus"
	"github.com/semelhq/semel/internal/prefer"
)

// heedPreferences says how long the request waits for another run: the route's wait, or what the client prefers within
// the route's bound. With "respond-async", where the route allows it, the request also waits that long for its
// own run before it is told 202. It does not wait at all if the client sends no "wait".
func (x *exchange) heedPreferences() {
	p, prefers := x.g.policy, prefer.Of(x.r.Header["Prefer"])
	wait := p.Wait
	if x.async = p.RespondAsync && prefers.Async; x.async {
		wait = 0
	}
	applied := p.MaxWait > 0 && prefers.Waits
	if applied {
		wait = min(prefers.Wait, p.MaxWait)
	}
	if p.Patience > 0 {
		wait = min(wait, p.Patience)
	}
	if applied {
		x.w.Header().Set("Preference-Applied", "wait="+strconv.FormatInt(int64(wait/time.Second), 10))
	}
	x.ask.Wait = wait
}

// A parting says how long a client waits for its own run, and how the client is then sent away. depart reports false if
// the client has to stay, because it is receiving the answer or is about to.
type parting struct {
	after  time.Duration
	depart func() bool
}

// parting returns when the client is sent away. It returns a zero parting if the client waits to the end. Only a run
// whose request is stored is promised to be finished.
func (x *execution) parting() parting {
	switch patience := x.g.policy.Patience; {
	case x.async && len(x.run.Sealed()) > 0:
		return parting{x.ask.Wait, x.departAccepted}
	case patience > 0:
		return parting{patience, x.departImpatient}
	}
	return parting{}
}

func (x *execution) departImpatient() bool {
	if !x.capture.detach() {
		return false
	}
	x.refuse(x.g.impatient())
	return true
}

// departAccepted tells the client 202, unless its run is being settled. The settle has to know whether the client was
// promised an end: so the promise comes before the settle, or not at all.
func (x *execution) departAccepted() bool {
	x.promising.Lock()
	departs := !x.settling && x.capture.detachUnbegun()
	if departs {
		x.run.Promise()
	}
	x.promising.Unlock()
	if departs {
		x.accept(event.Accepted)
	}
	return departs
}

// stay ends the time in which the client may be told 202.
func (x *execution) stay() {
	x.promising.Lock()
	defer x.promising.Unlock()
	x.settling = true
}

// accept answers 202: the operation goes on, and can be asked about (RFC 9110, section 15.3.3).
func (x *exchange) accept(result event.Result) {
	h := x.w.Header()
	applied := "respond-async"
	if wait := h.Get("Preference-Applied"); wait != "" {
		applied += ", " + wait
	}
	h.Set("Preference-Applied", applied)
	h.Set("Location", x.g.linkTo(x.ask.ID))
	h.Set("Retry-After", "1")
	s := x.g.newOperationStatus(x.ask.ID)
	s.State = operationstatus.Running
	s.Write(x.w, http.StatusAccepted)
	x.decided(x.r.Context(), decision{result: result, status: http.StatusAccepted})
}
