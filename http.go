package semel

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Handler protects next. The path of a request is serve, below: its key, its principal, its body and fingerprint, then
// the claim; what follows is a run of next, a replay, or a refusal.
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
	body      *requestBody

	// Of the run, if there is one. Written on the handler's goroutine.
	run      *run
	req      *http.Request // the handler's
	capture  capture
	returned bool // the handler returned: no panic, no Goexit
	thrown   any  // what it panicked with, if it ran on a goroutine of its own
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
	case p.Code == CodeStoreUnavailable && x.g.policy.FailOpen:
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
		x.ask.correlation = rand.Text()
		x.r.Header[name] = []string{x.ask.correlation}
	}
	x.w.Header()[name] = x.r.Header[name]
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
	if x.r.Header.Get("Early-Data") == "1" {
		return g.problem(CodeEarlyData, "")
	}
	if x.body == nil {
		if problem := x.readBody(body); problem != nil {
			return problem
		}
	}
	if err := checkContentDigest(x.r.Header, x.body); err != nil {
		return g.problem(CodeDigestMismatch, "").because(err)
	}
	x.ask.fingerprint, err = p.fingerprinter.of(g.identity, x.r, x.body)
	switch {
	case errors.Is(err, ErrBodyTooLarge):
		return g.tooLarge()
	case err != nil:
		return g.problem(CodeRequestUnreadable, "").because(err)
	}
	identity := key
	if p.PerOperation {
		identity += "\x00" + x.r.Method + " " + x.r.URL.EscapedPath() // a key holds no NUL
	}
	x.ask.id = g.identity.id(KindHTTP, scope, identity)
	x.ask.wait = x.patienceToWait()
	return nil
}

func operationName(r *http.Request) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	return r.Method + " " + r.URL.Path
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
		if err != nil {
			return "", x.g.problem(CodeKeyInvalid, name+": "+keyDetail(err)).because(err)
		}
		if key != "" && k != key {
			return "", x.g.problem(CodeKeyInvalid, x.keyHeader+" and "+name+" carry different keys")
		}
		key, x.keyHeader, x.keyValue = k, name, lines[0]
	}
	return key, nil
}

// fieldKey adds the key that a field of the body carries.
func (x *exchange) fieldKey(key string) (string, *Problem) {
	field := x.g.policy.KeyField
	v, found, err := jsonField(x.body, field)
	if err == nil && found {
		err = checkKey(v, &x.g.policy.KeyFormat)
	}
	switch {
	case err != nil:
		return "", x.g.problem(CodeKeyInvalid, field+" in the body: "+keyDetail(err)).because(err)
	case !found:
		return key, nil
	case key != "" && key != v:
		return "", x.g.problem(CodeKeyInvalid, x.keyHeader+" and "+field+" in the body carry different keys")
	case key == "":
		x.keyHeader, x.keyValue = x.g.policy.KeyHeaders[0], v
	}
	return v, nil
}

// keyDetail is the part of a key error that follows the sentinel's text, which the problem's title says already.
func keyDetail(err error) string {
	return strings.TrimPrefix(err.Error(), ErrKeyInvalid.Error()+": ")
}

func (x *exchange) readBody(src io.Reader) *Problem {
	p := x.g.policy
	body, err := readBody(src, bodyOptions{
		limit: p.MaxRequestBody, memory: p.SpoolRequestAbove, dir: x.g.tempDir,
		length: x.r.ContentLength, coding: x.r.Header["Content-Encoding"],
	})
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		x.body = body
		return nil
	case errors.Is(err, ErrBodyTooLarge), errors.As(err, &tooLarge):
		return x.g.tooLarge()
	}
	return x.g.problem(CodeRequestUnreadable, "").because(err)
}

func (g *Guard) tooLarge() *Problem {
	return g.problem(CodeBodyTooLarge, "the limit is "+strconv.FormatInt(g.policy.MaxRequestBody, 10)+" bytes, as sent and decompressed")
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
		x.handle(next)
		x.answer()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { x.thrown = recover() }()
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
		if x.thrown == nil {
			runtime.Goexit()
		}
		panic(x.thrown)
	}
	x.answer()
}

func (g *Guard) impatient() *Problem {
	p := g.problem(CodeOutcomePending, "the operation goes on")
	if _, configured := g.problems.Status[CodeOutcomePending]; !configured {
		p.Status = http.StatusGatewayTimeout
	}
	return p
}

// prepareRun makes the request and the writer that the handler gets. What identifies the operation was taken before, so
// that the handler may change the request as it likes.
func (x *exchange) prepareRun() {
	x.req = x.r.WithContext(&x.run.ctx)
	x.req.Body = x.body.open()
	if len(x.r.Trailer) == 0 {
		x.req.ContentLength, x.req.TransferEncoding = x.body.size(), nil
	}
	x.capture.init(x, x.w)
}

// handle runs next and settles its outcome, however it ends: by return, panic or Goexit. It recovers nothing: what was
// thrown goes on once the outcome is settled.
func (x *exchange) handle(next http.Handler) {
	defer x.finish()
	next.ServeHTTP(&x.capture, x.req)
	x.returned = true
}

func (x *exchange) finish() {
	defer x.closeBody()
	if f := x.req.MultipartForm; f != nil {
		defer f.RemoveAll() //nolint:errcheck // temporary files; nobody can mend that here
	}
	x.run.lease.handlerEnded()
	if !x.returned {
		x.run.event(EventPanic, nil)
	}
	o, thrown := x.outcome()
	x.rec, x.how = x.run.settle(o)
	if !x.returned || thrown != nil {
		x.capture.discard()
		x.decided(ResultFailed, "", 0, nil)
	}
	if thrown != nil {
		x.returned = false
		panic(thrown)
	}
}

// outcome decides what the run is settled with. thrown is what Policy.Decide panicked with.
func (x *exchange) outcome() (o Outcome, thrown any) {
	p := x.g.policy
	lost := x.run.op.lost.Load()
	switch {
	case !x.returned:
		return Outcome{State: p.lostState(), Error: "the handler did not return"}, nil
	case lost != nil:
		return Outcome{State: p.lostState(), Error: errorText(lost.err)}, nil
	case x.capture.failed != nil:
		x.run.op.Lost(x.capture.failed) // a stream that could not begin
		return Outcome{State: p.lostState(), Error: x.capture.failed.Error()}, nil
	}
	defer func() {
		if thrown = recover(); thrown != nil {
			o = Outcome{State: p.lostState(), Error: "Policy.Decide panicked"}
		}
	}()
	x.capture.end()
	c := &x.capture
	v := p.verdict(Verdict(x.run.op.verdict.Load()), c.status, c.sent, c.stored())
	o.State = p.stateFor(v)
	if o.State == Done {
		if o.Response = c.response(); o.Response == nil {
			x.run.event(EventNotReplayable, c.whyNotStored())
		}
		return o, nil
	}
	o.Error = "answered " + strconv.Itoa(c.status)
	return o, nil
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
	if c.begun {
		if x.how != settledOwn || x.run.op.lost.Load() != nil {
			x.decided(ResultFailed, "", c.status, nil)
			panic(http.ErrAbortHandler) // a stream ends cleanly only after its settle is acknowledged
		}
		c.endLive()
		x.decided(ResultExecuted, "", c.status, nil)
		return
	}
	switch {
	case x.how == settledLater:
		x.refuse(x.g.problem(CodeOutcomePending, ""))
	case x.how == settledFenced:
		x.answerFenced()
	case x.run.op.lost.Load() != nil:
		x.refuse(x.g.lostProblem())
	default:
		c.writeLive()
		x.decided(ResultExecuted, "", c.status, nil)
	}
}

// lostProblem tells a client that its own run was lost. Under Rerun the same key may try again.
func (g *Guard) lostProblem() *Problem {
	if g.policy.OnLost == Rerun {
		return g.problem(CodeOutcomePending, "the run was lost; the same key will run it again")
	}
	return g.problem(CodeOutcomeUnknown, "the run was lost; ask for the operation's status, or for its operator's decision")
}

// answerFenced answers the client of a late owner with what the record says, never with the late owner's own result.
func (x *exchange) answerFenced() {
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
	if x.body != nil {
		x.r.Body = x.body.open()
		defer x.closeBody()
	}
	next.ServeHTTP(x.w, x.r)
	x.decided(result, "", 0, nil)
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
	values := []string{x.keyValue, "no-store"}
	h[x.keyHeader] = values[:1:1]
	if _, set := h["Cache-Control"]; !set {
		h["Cache-Control"] = values[1:]
	}
}

// decided reports the decision about this request.
func (x *exchange) decided(result Result, code Code, status int, err error) {
	e := Event{
		Kind: EventDecision, Result: result, Code: code, ID: x.ask.id, Operation: x.ask.operation,
		Correlation: x.ask.correlation, Status: status, Duration: time.Since(x.started), Err: err,
	}
	if x.run != nil {
		e.Attempt, e.Fence = uint32(x.run.op.Attempt), x.run.owner.Fence
	}
	x.g.observer.Observe(context.WithoutCancel(x.r.Context()), e)
}
