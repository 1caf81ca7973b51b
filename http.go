package semel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Handler protects next. The path of a request is serve, below: its key, its principal, its body and fingerprint, then
// the claim; what follows is a run of next, a replay, or a refusal.
//
// What wraps the guard sees every request; what the guard wraps sees only those that run. So authentication, and
// whatever else a repeat must pass too, belongs above the guard. A rate limiter, and a check that can be passed only
// once, such as of a one-time token, belong below it: above, a repeat would spend the limit, or be refused its answer.
// Compression belongs above: a stored answer is then compressed as each repeat accepts. http.StripPrefix belongs below:
// the path is part of what a request was, as the guard sees it.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !g.policy.methods[r.Method]:
			next.ServeHTTP(w, r)
		case g.policy.Observe:
			g.shadow(next, w, r)
		default:
			x := &exchange{g: g, w: w, r: r, started: time.Now()}
			x.serve(next)
		}
	})
}

// An exchange is one request of a protected method and what becomes of it.
type exchange struct {
	g       *Guard
	w       http.ResponseWriter
	r       *http.Request
	started time.Time

	ask       ask
	keyHeader string // the header in which the key came, and is echoed
	keyValue  string
	unkeyed   bool
	made      bool // the correlation id was made, not sent
	body      *requestBody
	room      [8]string // for headers of one value
	values    int       // how much of it is taken

	// Of the run, if there is one. Written on the handler's goroutine.
	run      *run
	req      *http.Request // the handler's
	capture  capture
	returned bool // the handler returned: no panic, no Goexit
	thrown   any  // what it panicked with, if it ran on a goroutine of its own
	outcome  Outcome
	lost     bool // no answer, perhaps an effect
	rec      Record
	how      settled
}

func (x *exchange) serve(next http.Handler) {
	x.correlate()
	if p := x.identify(x.r.Body); p != nil {
		x.refuse(p)
		x.closeBody()
		return
	}
	if x.unkeyed {
		x.bypass(next, ResultUnkeyed)
		return
	}
	x.keyedHeaders(x.w.Header())
	run, rec, p := x.g.enter(x.r.Context(), &x.ask)
	switch {
	case run != nil:
		x.run = run
		x.execute(next)
	case rec != nil:
		x.replay(rec)
		x.closeBody()
	case p.Code == CodeStoreUnavailable && x.g.policy.FailOpen && x.r.Context().Err() == nil: // not a client that left
		x.w.Header().Set("Idempotency-Status", "bypassed")
		x.bypass(next, ResultBypassed)
	default:
		x.refuse(p)
		x.closeBody()
	}
}

// correlate takes the request's correlation id, or makes one, which the handler sees in the request and the client in
// the answer.
func (x *exchange) correlate() {
	name := x.g.headers.correlation
	if name == "" {
		return
	}
	if v := x.r.Header[name]; len(v) == 1 && plainID(v[0]) {
		x.ask.correlation = v[0]
	} else {
		x.ask.correlation, x.made = rand.Text(), true
	}
	x.w.Header()[name] = x.value(x.ask.correlation)
}

// value returns the values of a header that has one. They come from the exchange's own room, so that what the guard adds
// to an answer does not cost an allocation a header.
func (x *exchange) value(v string) []string {
	if x.values == len(x.room) {
		return []string{v}
	}
	x.room[x.values] = v
	x.values++
	return x.room[x.values-1 : x.values : x.values]
}

// correlated gives a copy of the request the correlation id that was made. The caller's request, and its header, stay as
// they are.
func (x *exchange) correlated(r *http.Request) {
	if !x.made {
		return
	}
	h := make(http.Header, len(r.Header)+1)
	maps.Copy(h, r.Header)
	h[x.g.headers.correlation] = x.value(x.ask.correlation)
	r.Header = h
}

// plainID reports whether a correlation id may stand in logs and headers as it is.
func plainID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// identify tells who asks for what: it fills x.ask, or says that the request carries no key, or refuses it. Nothing is
// run or stored before it has succeeded.
func (x *exchange) identify(body io.Reader) *Problem {
	g, p := x.g, x.g.policy
	x.ask.kind = KindHTTP
	x.ask.operation = p.Operation
	if x.ask.operation == "" {
		x.ask.operation = operationName(x.r)
	}
	key, problem := x.headerKey()
	if problem != nil {
		return problem
	}
	if p.KeyField != "" {
		if problem := x.readBody(body); problem != nil {
			return problem
		}
		if key, problem = x.fieldKey(key); problem != nil {
			return problem
		}
	}
	if key == "" {
		x.unkeyed = true
		if !p.KeyOptional {
			return g.problem(CodeKeyMissing, "send the header "+strings.Join(p.KeyHeaders, " or "))
		}
		return nil
	}
	x.ask.key = key
	scope, err := g.scope.of(x.r)
	if err != nil || scope == "" {
		return g.problem(CodeScopeInvalid, "").because(err)
	}
	x.ask.scope = scope
	if len(x.r.Header["Early-Data"]) > 0 {
		return g.problem(CodeEarlyData, "") // whatever it says, it counts as 1 (RFC 8470, section 5.1)
	}
	if x.body == nil {
		if problem := x.readBody(body); problem != nil {
			return problem
		}
	}
	if err := checkContentDigest(x.r.Header, x.body); err != nil {
		return g.bodyProblem(err)
	}
	if x.ask.fingerprint, err = p.fingerprinter.of(g.identity, x.r, x.body); err != nil {
		return g.bodyProblem(err)
	}
	if p.PerOperation {
		x.ask.key += "\x00" + x.r.Method + " " + x.r.URL.EscapedPath() // a key holds no NUL
	}
	x.ask.id = g.identity.id(KindHTTP, scope, x.ask.key)
	x.ask.wait = x.patienceToWait()
	return nil
}

// operationName is what a route is called that has no name of its own. A path is the client's choice: it is cut, and
// left escaped, so that any store and log can take it.
func operationName(r *http.Request) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	const longest = 200
	path := r.URL.EscapedPath()
	return r.Method + " " + path[:min(len(path), longest)]
}

// headerKey returns the key that the headers carry, or "".
func (x *exchange) headerKey() (string, *Problem) {
	var key string
	for _, name := range x.g.policy.KeyHeaders {
		lines := x.r.Header[name]
		if len(lines) == 0 {
			continue
		}
		k, err := parseKey(lines, &x.g.policy.KeyFormat)
		switch {
		case err != nil:
			return "", x.g.problem(CodeKeyInvalid, name+": "+detailOf(err, ErrKeyInvalid)).because(err)
		case key == "":
			key, x.keyHeader, x.keyValue = k, name, lines[0]
		case k != key:
			return "", x.g.problem(CodeKeyInvalid, x.keyHeader+" and "+name+" carry different keys")
		}
	}
	return key, nil
}

// fieldKey adds the key that a field of the body carries.
func (x *exchange) fieldKey(key string) (string, *Problem) {
	field := x.g.policy.KeyField
	v, found, err := jsonField(x.body, field)
	switch {
	case err != nil:
		return "", x.g.problem(CodeKeyInvalid, err.Error()).because(err)
	case !found:
		return key, nil
	}
	err = checkKey(v, &x.g.policy.KeyFormat)
	switch {
	case err != nil:
		return "", x.g.problem(CodeKeyInvalid, "JSON field "+field+": "+detailOf(err, ErrKeyInvalid)).because(err)
	case key != "" && key != v:
		return "", x.g.problem(CodeKeyInvalid, x.keyHeader+" and JSON field "+field+" carry different keys")
	case key == "":
		x.keyHeader, x.keyValue = x.g.policy.KeyHeaders[0], v
	}
	return v, nil
}

// detailOf is the part of an error that follows its sentinel's text, which the problem's title says already.
func detailOf(err, sentinel error) string {
	_, detail, _ := strings.Cut(err.Error(), sentinel.Error()+": ")
	return detail
}

func (x *exchange) readBody(src io.Reader) *Problem {
	p := x.g.policy
	body, err := readBody(src, bodyOptions{
		limit: p.MaxRequestBody, memory: p.SpoolRequestAbove, dir: x.g.tempDir,
		length: x.r.ContentLength, coding: x.r.Header["Content-Encoding"],
	})
	if err != nil {
		return x.g.bodyProblem(err)
	}
	x.body = body
	return nil
}

// bodyProblem is the refusal of a request whose body could not be taken as it is.
func (g *Guard) bodyProblem(err error) *Problem {
	var file *fs.PathError
	switch {
	case errors.Is(err, ErrBodyTooLarge):
		return g.problem(CodeBodyTooLarge, detailOf(err, ErrBodyTooLarge)).because(err)
	case errors.Is(err, ErrDigestMismatch):
		return g.problem(CodeDigestMismatch, "").because(err)
	case errors.As(err, &file):
		return g.problem(CodeStoreUnavailable, "").because(err) // our temporary file has failed, not the request
	}
	return g.problem(CodeRequestUnreadable, "").because(err)
}

func (x *exchange) closeBody() {
	if x.body != nil {
		x.body.close() //nolint:errcheck // only a temporary file's removal can fail, and nobody can mend that here
	}
}

// patienceToWait is how long the request waits for another run: the route's wait, or what the client prefers within the
// route's bound.
func (x *exchange) patienceToWait() time.Duration {
	p := x.g.policy
	wait := p.Wait
	if p.MaxWait > 0 {
		if d, ok := preferredWait(x.r.Header["Prefer"]); ok {
			wait = min(d, p.MaxWait)
			x.w.Header().Set("Preference-Applied", "wait="+strconv.FormatInt(int64(wait/time.Second), 10))
		}
	}
	if p.Patience > 0 {
		wait = min(wait, p.Patience)
	}
	return wait
}

// preferredWait reads "Prefer: wait=N" (RFC 7240, section 4.3), in whole seconds.
func preferredWait(lines []string) (time.Duration, bool) {
	for _, line := range lines {
		for pref := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(pref), "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			value, _, _ = strings.Cut(value, ";")
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
			if err != nil {
				return 0, false
			}
			return time.Duration(n) * time.Second, true
		}
	}
	return 0, false
}

// execute runs next and answers with its outcome. Without Patience it runs on the request's own goroutine. With it, the
// client may be answered before the run has ended, so the handler gets a goroutine; what that throws is thrown again.
func (x *exchange) execute(next http.Handler) {
	patience := x.g.policy.Patience
	x.prepareRun()
	if patience <= 0 {
		defer x.failed()
		x.handle(next)
		x.answer()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			x.thrown = recover()
			if !x.returned {
				x.run.event(EventPanic, panicError(x.thrown))
			}
		}()
		x.handle(next)
	}()
	timer := time.NewTimer(patience - time.Since(x.started))
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		if x.capture.detach() {
			x.refuse(x.g.impatient())
			return
		}
		<-ended // the client is receiving the answer already
	}
	if !x.returned {
		x.decided(ResultFailed, "", 0, nil)
		if x.thrown == nil {
			runtime.Goexit()
		}
		panic(x.thrown)
	}
	x.answer()
}

// failed reports a run whose handler did not return. What it threw goes on.
func (x *exchange) failed() {
	if !x.returned {
		x.run.event(EventPanic, nil)
		x.decided(ResultFailed, "", 0, nil)
	}
}

// panicError describes what a handler threw on a goroutine of its own: if its client has been answered, nobody else will
// see it.
func panicError(thrown any) error {
	if thrown == nil || thrown == http.ErrAbortHandler { //nolint:errorlint // net/http compares what was thrown in the same way
		return nil
	}
	return fmt.Errorf("panic: %v\n%s", thrown, debug.Stack())
}

func (g *Guard) impatient() *Problem {
	p := g.problem(CodeOutcomePending, "the operation goes on")
	if _, configured := g.problems.Status[CodeOutcomePending]; !configured {
		p.Status = http.StatusGatewayTimeout
	}
	return p
}

// prepareRun makes the request and the writer that the handler gets. What identifies the operation was taken before, so
// that the handler may change the request as it likes. With Patience it may do so while the layers above, which have
// been answered, still read theirs.
func (x *exchange) prepareRun() {
	if x.g.policy.Patience > 0 {
		x.req = x.r.Clone(&x.run.ctx)
	} else {
		x.req = x.r.WithContext(&x.run.ctx)
	}
	x.correlated(x.req)
	x.req.Body = x.body.open()
	if len(x.r.Trailer) == 0 {
		x.req.ContentLength, x.req.TransferEncoding = x.body.size(), nil
	}
	x.capture.init(x, x.w)
}

// handle runs next and settles its outcome, however it ends: by return, panic or Goexit, of Policy.Decide too. It
// recovers nothing: what was thrown goes on once the outcome is settled.
func (x *exchange) handle(next http.Handler) {
	defer x.finish()
	next.ServeHTTP(&x.capture, x.req)
	x.outcome = x.decide()
	x.returned = true
}

func (x *exchange) finish() {
	defer x.closeBody()
	defer x.removeForm()
	x.run.lease.handlerEnded()
	if !x.returned {
		x.outcome = Outcome{State: x.g.policy.lostState(), Error: "the handler did not return"}
	}
	x.rec, x.how = x.run.settle(x.outcome)
	if !x.returned {
		x.capture.abort()
		x.capture.discard()
	}
	x.capture.conclude()
}

// removeForm removes the temporary files of a multipart form that the handler has parsed. net/http removes only those of
// its own request.
func (x *exchange) removeForm() {
	if f := x.req.MultipartForm; f != nil {
		f.RemoveAll() //nolint:errcheck // temporary files; nobody can mend that here
	}
}

// decide says what the run of a handler that returned is settled with.
func (x *exchange) decide() Outcome {
	p, c := x.g.policy, &x.capture
	if lost := x.run.op.lost.Load(); lost != nil {
		x.lost = true
		return Outcome{State: p.lostState(), Error: errorText(lost.err)}
	}
	if c.unbegun != nil {
		x.lost = true // the handler could not give its answer, and may have stopped in the middle
		return Outcome{State: p.lostState(), Error: c.unbegun.Error()}
	}
	c.end()
	v := p.verdict(Verdict(x.run.op.verdict.Load()), c.status, c.sent, c.stored())
	o := Outcome{State: p.stateFor(v)}
	if o.State != Done {
		o.Error = "answered " + strconv.Itoa(c.status)
		return o
	}
	if o.Response = c.response(); o.Response == nil {
		x.run.event(EventNotReplayable, c.whyNotStored())
	}
	return o
}

func errorText(err error) string {
	if err == nil {
		return "lost"
	}
	return err.Error()
}

// answer gives the client the outcome of its run, now that it is durable or known not to be.
func (x *exchange) answer() {
	c := &x.capture
	defer c.discard()
	switch {
	case c.begun && (x.how != settledOwn || x.lost):
		x.breakOff() // a stream ends cleanly only after its settle is acknowledged
	case c.begun:
		c.endLive()
		x.decided(ResultExecuted, "", c.status, nil)
	case x.how == settledLater:
		x.refuse(x.g.problem(CodeOutcomePending, ""))
	case x.how == settledFenced, c.unkept != nil:
		x.answerRecorded()
	case x.lost:
		x.refuse(x.g.lostProblem())
	default:
		if err := c.writeLive(); err != nil {
			x.breakOff() // the temporary file can't be read
		}
		x.decided(ResultExecuted, "", c.status, nil)
	}
}

// breakOff ends the exchange without ending the answer.
func (x *exchange) breakOff() {
	x.decided(ResultFailed, "", x.capture.status, nil)
	x.capture.abort()
	panic(http.ErrAbortHandler)
}

// lostProblem tells a client that its own run was lost. Under Rerun the same key may try again.
func (g *Guard) lostProblem() *Problem {
	if g.policy.OnLost == Rerun {
		return g.problem(CodeOutcomePending, "the run was lost; the same key will run it again")
	}
	return g.problem(CodeOutcomeUnknown, "the run was lost; ask for the operation's status, or for its operator's decision")
}

// answerRecorded answers with what the record says: the client of a late owner, which never gets the late owner's own
// result, and one whose answer could not be kept.
func (x *exchange) answerRecorded() {
	rec := &x.rec
	if rec.State == Absent || !rec.Fingerprint.Equal(x.ask.fingerprint) {
		x.refuse(x.g.problem(CodeOutcomeUnknown, ""))
		return
	}
	switch rec.Reads(x.g.policy.OnLost) {
	case ReadsDone:
		x.replay(rec)
	case ReadsRunning, ReadsFree:
		x.refuse(x.g.inProgress(rec))
	default:
		x.refuse(x.g.problem(CodeOutcomeUnknown, ""))
	}
}

// bypass runs next without protection.
func (x *exchange) bypass(next http.Handler, result Result) {
	r := x.r.WithContext(x.r.Context())
	x.correlated(r)
	if x.body != nil {
		r.Body = x.body.open()
		defer x.closeBody()
	}
	defer x.decided(result, "", 0, nil) // also if next panics
	next.ServeHTTP(x.w, r)
}

// refuse answers with a problem of the guard's own.
func (x *exchange) refuse(p *Problem) {
	if x.keyHeader != "" {
		x.keyedHeaders(x.w.Header())
	}
	x.g.writeProblem(x.w, x.r, p)
	x.decided(resultOf(p.Code), p.Code, p.Status, p.cause)
}

func resultOf(c Code) Result {
	switch c {
	case CodeInProgress:
		return ResultInProgress
	case CodeKeyReused:
		return ResultMismatch
	case CodeOutcomeUnknown:
		return ResultUnknown
	case CodeOutcomePending:
		return ResultFailed
	}
	return ResultRefused
}

// keyedHeaders adds what every keyed answer carries.
func (x *exchange) keyedHeaders(h http.Header) {
	h[x.keyHeader] = x.value(x.keyValue)
	if _, set := h["Cache-Control"]; !set {
		h["Cache-Control"] = x.value("no-store")
	}
}

// decided reports the decision about this request.
func (x *exchange) decided(result Result, code Code, status int, err error) {
	if x.g.observer == nobody {
		return
	}
	e := Event{
		Kind: EventDecision, Result: result, Code: code, ID: x.ask.id, Operation: x.ask.operation,
		Correlation: x.ask.correlation, Status: status, Duration: time.Since(x.started), Err: err,
	}
	if x.run != nil {
		e.Attempt, e.Fence = uint32(x.run.op.Attempt), x.run.owner.Fence
	}
	x.g.observer.Observe(context.WithoutCancel(x.r.Context()), e)
}
