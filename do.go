package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

// Key identifies an operation of [Do]: who asks, what for, and the key that they chose.
type Key struct {
	Scope string // principal or tenant; not empty
	// Operation names what is asked for, such as "send invoice" or "/shop.Payments/Charge": the function, not the call. It
	// is part of what is compared: the same key for another name is [refusal.KeyReused], so that no function gets another
	// one's result; under Policy.PerOperation it is another operation. 1 to 255 bytes of UTF-8 without NUL; it shows in
	// records, events and logs. Defaults to Policy.Operation.
	Operation string
	Value     string // as Policy.KeyFormat demands
}

// A Fingerprinter says what a request was, in bytes that are equal exactly if the requests are.
type Fingerprinter interface {
	FingerprintBytes() ([]byte, error)
}

// Bytes is a request that is its own fingerprint.
type Bytes []byte

// FingerprintBytes returns b.
func (b Bytes) FingerprintBytes() ([]byte, error) { return b, nil }

// JSON is a request whose fingerprint is its encoding by encoding/json.
func JSON(request any) Fingerprinter { return jsonRequest{request} }

type jsonRequest struct{ request any }

func (r jsonRequest) FingerprintBytes() ([]byte, error) { return json.Marshal(r.request) }

// Final marks an error as an outcome: it is stored, and replayed to repeats with the same message, and the same code if
// it has a method Code() string. Other errors count as a 5xx does: Policy.OnError decides.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// ReplayedError is the stored error of an earlier call of [Do].
type ReplayedError struct {
	Report // of the earlier call

	message, code string
}

func (e *ReplayedError) Error() string { return e.message }

// Code returns the code of the first error, "" if it had none.
func (e *ReplayedError) Code() string { return e.code }

// Do runs fn once for a key, and gives every repeat with the same request the first result, as JSON decodes it. It is
// the guard for jobs, commands and RPC. A refusal is a [*Problem], which unwraps to [refusal.InProgress],
// [refusal.KeyReused] and so on. With an error, the value is zero. A key without an Operation, on a guard whose policy
// names none either, is [ErrOperationName]. [WithReport] tells whether a result is a replay.
//
// The type of a result is not stored: what encoding/json makes of the first one is decoded into T, as that is by then.
// What does not decode is replay-unavailable; fields that T does not have are passed over.
//
// fn gets a context with ctx's values but not its cancellation, and Policy.MaxRun as its deadline; [FromContext] finds
// its operation. If ctx ends first, or Policy.Patience passes, Do returns [refusal.OutcomePending] and fn goes on; a
// repeat gets its result. If ctx ends before fn has begun, fn is not run, and Do returns [refusal.StoreUnavailable] as
// soon as the store has replied, within seconds. What fn throws, a panic or runtime.Goexit, Do throws too, once it is
// settled.
//
// Of the policy, what is about requests and answers of HTTP does not apply, nor does Policy.Observe.
func Do[T any](ctx context.Context, g *Guard, key Key, request Fingerprinter, fn func(context.Context) (T, error)) (value T, err error) {
	c := call{g: g, ctx: ctx, started: time.Now()}
	if to := reportTo(ctx); to != nil {
		defer func() { *to = c.report }()
	}
	if err := c.name(key); err != nil {
		return value, err
	}
	var rec driver.Record
	p := c.enter(key, request, &rec)
	switch {
	case c.run != nil:
		return runJob(&c, c.run, fn)
	case p == nil:
		return replayResult[T](&c, &rec)
	case g.opens(p):
		defer c.decided(event.Bypassed, nil)
		return fn(outside(ctx))
	}
	return refused[T](&c, p)
}

// A call is one call of Do and what becomes of it.
type call struct {
	g       *Guard
	ctx     context.Context
	started time.Time
	ask     ask
	run     *run
	report  Report
}

// name fills in what the operation is called. An error is about the call, not about what its caller asks for.
func (c *call) name(key Key) error {
	c.ask.kind, c.ask.operation = KindDo, key.Operation
	if key.Operation == "" {
		c.ask.operation = c.g.policy.Operation
	}
	err := checkName(c.ask.operation)
	if err == nil {
		return nil
	}
	c.ask.operation = ""
	err = fmt.Errorf("semel: do: %w: %w; Key.Operation or Policy.Operation says it", ErrOperationName, err)
	c.observe(event.Event{Result: event.Refused, Err: err})
	return err
}

// enter asks for the operation. Without a run and a refusal the answer is that of rec.
func (c *call) enter(key Key, request Fingerprinter, rec *driver.Record) (p *Problem) {
	if p = c.identify(key, request); p == nil {
		c.run, p = c.g.enter(c.ctx, &c.ask, rec)
	}
	return p
}

// identify fills in what the call asks for.
func (c *call) identify(key Key, request Fingerprinter) *Problem {
	g, p := c.g, c.g.policy
	if key.Scope == "" {
		return g.problem(refusal.ScopeInvalid, "the scope is empty")
	}
	value, err := checkKey(key.Value, &p.KeyFormat)
	if err != nil {
		return g.problem(refusal.KeyInvalid, detailOf(err, refusal.KeyInvalid)).because(err)
	}
	b, err := request.FingerprintBytes()
	if err != nil {
		return g.problem(refusal.RequestUnreadable, "").because(fmt.Errorf("fingerprint the request: %w", err))
	}
	d := g.identity.Start("semel do request 1")
	d.Text(c.ask.operation)
	d.Bytes(b)
	sum := d.Sum()
	copy(c.ask.fingerprint.Raw[:], sum[:])
	c.ask.fingerprint.Canonical = c.ask.fingerprint.Raw
	copy(c.ask.fingerprint.Settings[:], "do 2") // "do 1" let operations have no name

	c.ask.scope, c.ask.key = key.Scope, value
	if p.PerOperation {
		c.ask.key += "\x00" + c.ask.operation // a key holds no NUL
	}
	c.ask.id = g.identity.ID(string(KindDo), c.ask.scope, c.ask.key)
	if c.ask.wait = p.Wait; p.Patience > 0 {
		c.ask.wait = min(p.Wait, p.Patience)
	}
	return nil
}

func refused[T any](c *call, p *Problem) (zero T, err error) {
	c.decided(resultOf(p.Code, c.run), p)
	return zero, p
}

// ran reports that the caller has the result of its run.
func (c *call) ran() {
	result, code := c.run.op.result()
	if code == "" {
		c.decided(result, nil)
		return
	}
	c.decided(result, &Problem{Code: code})
}

// decided reports the decision about this call; p is the refusal, if it is one.
func (c *call) decided(result event.Result, p *Problem) {
	e := event.Event{Result: result}
	if c.run != nil {
		e.Attempt, e.Fence = uint32(c.run.attempt), c.run.owner.Fence
	}
	if p != nil {
		e.Code, e.Err = p.Code, p.cause
	}
	c.observe(e)
}

// observe reports a decision about this call.
func (c *call) observe(e event.Event) {
	e.Kind, e.ID, e.Operation, e.Duration = event.Decision, c.ask.id, c.ask.operation, time.Since(c.started)
	c.g.observer.Observe(context.WithoutCancel(c.ctx), e)
}

// A thrown is what ended a function that did not return.
type thrown struct{ value any } // that it panicked with; nil if it ended by runtime.Goexit

// A job is one run of a function.
type job[T any] struct {
	policy *policy
	run    *run
	ended  chan struct{} // closed when the rest may be read

	value    T
	err      error
	returned bool
	settled  bool    // the settle returned: how tells what came of it
	broken   *thrown // by fn, or by whatever read or stored what it returned
	lost     bool
	nothing  bool // it was rolled back, although fn returned a value
	rec      driver.Record
	how      settled
}

// runJob runs fn, and returns its result, or throws what it threw, or returns that it goes on.
func runJob[T any](c *call, r *run, fn func(context.Context) (T, error)) (T, error) {
	j := startJob(r, fn)
	err := j.wait(c)
	switch {
	case err != nil:
		return refused[T](c, c.g.problem(refusal.OutcomePending, "the operation goes on").because(err))
	case j.broken == nil:
		return j.result(c)
	}
	c.decided(event.Failed, nil)
	if j.broken.value == nil {
		runtime.Goexit()
	}
	panic(j.broken.value)
}

// startJob runs fn on a goroutine of its own.
func startJob[T any](r *run, fn func(context.Context) (T, error)) *job[T] {
	j := &job[T]{policy: r.policy, run: r, ended: make(chan struct{})}
	r.face = j
	go j.do(fn)
	return j
}

// wait returns when the job has ended, or with an error when the call's context does or Patience has passed.
func (j *job[T]) wait(c *call) error {
	ctx := c.ctx
	if patience := c.g.policy.Patience; patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.started.Add(patience))
		defer cancel()
	}
	select {
	case <-j.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do runs fn and settles its outcome, however it ends. What fn throws is thrown again by runJob, if Do still waits.
func (j *job[T]) do(fn func(context.Context) (T, error)) {
	defer close(j.ended)
	defer func() {
		if value := recover(); !j.settled { // the store has ended this goroutine
			j.broken = &thrown{value}
		}
	}()
	defer j.finish()
	j.value, j.err = fn(&j.run.ctx)
	j.returned = true
}

func (j *job[T]) finish() {
	if value := recover(); !j.returned {
		j.broken = &thrown{value}
	}
	j.run.joint.close()
	j.run.lease.handlerEnded()
	o := j.outcome()
	if j.lost && j.policy.OneCommit {
		j.lost, j.nothing = false, true // nothing of it will be recorded, so there is no doubt
	}
	if !j.returned {
		j.run.event(event.Panic, panicError(j.broken.value))
	}
	j.rec, j.how = j.run.settle(o)
	if s := &j.run.joint; j.how == settledOwn && s.state >= doubtful && s.result != nil { // it has committed
		j.value, _ = s.result.value.(T) // an interface may hold nothing
		j.err = s.result.err
	}
	j.settled = true
}

// outcome decides what the run is settled with. A result or an error that throws when it is read is lost: fn has ended
// as if it had thrown that itself.
func (j *job[T]) outcome() (o driver.Outcome) {
	p := j.policy
	defer func() {
		if value := recover(); value != nil {
			j.broken, j.returned = &thrown{value}, false
			o = p.lost("the result could not be read")
		}
	}()
	s := &j.run.joint
	lost := j.run.op.lost.Load()
	switch {
	case s.state == committed || s.state == doubtful:
		return s.outcome
	case !j.returned && j.run.provesNothing():
		return driver.Outcome{State: driver.Free, Error: "the function did not return; its transaction was rolled back"}
	case !j.returned:
		return p.lost("the function did not return")
	case lost != nil:
		j.lost = true
		return p.lost(errorText(lost.err))
	case s.state == rolledBack && j.err == nil && j.run.provesNothing():
		j.nothing = true
		return driver.Outcome{State: driver.Free, Error: "its transaction was rolled back"}
	case s.state == rolledBack && j.err == nil:
		j.lost = true
		return p.lost("its transaction was rolled back, but there may be an effect elsewhere")
	case j.run.provesNothing():
		released := *p
		released.OnError = ReleaseErrors
		p = &released
	}
	return j.decide(p, j.value, j.err)
}

// decide says what a result is settled with.
func (j *job[T]) decide(p *policy, value T, result error) (o driver.Outcome) {
	v := Verdict(j.run.op.verdict.Load())
	if v == VerdictDefault {
		v = VerdictKeep
		if result != nil && !isFinal(result) {
			v = p.byRules(http.StatusInternalServerError, nil)
		}
	}
	if v == VerdictRelease {
		o = driver.Outcome{State: driver.Free, Error: "released"}
		if result != nil {
			o.Error = result.Error()
		}
		return o
	}
	if p.NoStore {
		return driver.Outcome{State: driver.Done}
	}
	body, err := storedResult(value, result)
	if err == nil && int64(len(body)) > p.MaxResponseBody {
		err = errors.New("the result is larger than Policy.MaxResponseBody")
	}
	if err != nil {
		j.run.event(event.NotReplayable, err)
		return driver.Outcome{State: driver.Done}
	}
	r := &driver.Response{}
	r.Body, r.Codec = j.run.core.codecs.pack(body, p.CompressAbove)
	return driver.Outcome{State: driver.Done, Response: r}
}

func isFinal(err error) bool {
	var final *finalError
	return errors.As(err, &final)
}

func (*job[T]) mark() error { return nil }

func (*job[T]) rewind(bool) {} // what the function returned is decided about again

func (j *job[T]) freeze(err error) (driver.Outcome, bool, error) {
	r := j.run.joint.result
	switch {
	case r == nil && err != nil:
		return driver.Outcome{State: driver.Free}, false, nil //nolint:nilerr // that error is the caller's; it has decided
	case r == nil:
		return driver.Outcome{}, false, fmt.Errorf("%w: in Do a transaction has to know the result: use DoTx, or the store's own Do", refusal.NoAnswer)
	}
	value, _ := r.value.(T) // an interface may hold nothing
	return j.decide(j.policy, value, r.err), err == nil || isFinal(err), nil
}

// result is what the call returns once its run has ended, unless that is broken.
func (j *job[T]) result(c *call) (value T, err error) {
	switch {
	case j.how == settledLater:
		return refused[T](c, c.g.problem(refusal.OutcomePending, ""))
	case j.how == settledNothing, j.nothing && j.how == settledOwn:
		return refused[T](c, c.g.nothingProblem().because(j.err))
	case j.how == settledFenced:
		return fencedResult[T](c, &j.rec)
	case j.lost, j.how == settledLost:
		return refused[T](c, c.g.lostProblem())
	}
	c.ran()
	c.report = reportOf(&j.rec, c.run.attempt)
	if j.err != nil {
		return value, j.err
	}
	return j.value, nil
}

// fencedResult is what a late owner's call returns: what the record says, never its own result.
func fencedResult[T any](c *call, rec *driver.Record) (T, error) {
	if !rec.Fingerprint.Equal(c.ask.fingerprint) {
		return refused[T](c, c.g.problem(refusal.OutcomeUnknown, ""))
	}
	switch rec.Reads(c.g.policy.OnLost) {
	case driver.ReadsDone:
		return replayResult[T](c, rec)
	case driver.ReadsRunning, driver.ReadsFree:
		return refused[T](c, c.g.inProgress(rec))
	}
	return refused[T](c, c.g.problem(refusal.OutcomeUnknown, ""))
}

// result as it is stored.
type storedJSON struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error *storedError    `json:"error,omitempty"`
}

type storedError struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
}

func storedResult(value any, err error) ([]byte, error) {
	var s storedJSON
	if err != nil {
		s.Error = &storedError{Message: err.Error()}
		var coded interface{ Code() string }
		if errors.As(err, &coded) {
			s.Error.Code = coded.Code()
		}
	} else {
		v, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("store the result: %w", err)
		}
		s.Value = v
	}
	return json.Marshal(s)
}

// replayResult gives the stored result again.
func replayResult[T any](c *call, rec *driver.Record) (value T, err error) {
	if rec.State != driver.Done || rec.Response == nil {
		return refused[T](c, c.g.problem(refusal.ReplayUnavailable, ""))
	}
	var s storedJSON
	var body []byte
	answer, err := c.g.openAnswer(c.ctx, c.ask.id, rec)
	if err == nil {
		body, err = c.g.codecs.unpack(answer, max(c.g.policy.MaxResponseBody, DefaultMaxResponseBody))
	}
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err == nil && s.Error == nil {
		err = json.Unmarshal(s.Value, &value)
	}
	if err != nil {
		c.g.storeFailed(c.ctx, "replay", c.ask.id, fmt.Errorf("read the stored result: %w", err))
		return refused[T](c, c.g.problem(refusal.ReplayUnavailable, "the stored result does not decode").because(err))
	}
	c.decided(event.Replayed, nil)
	c.report = reportOf(rec, int(rec.Attempt))
	c.report.Replayed = true
	if s.Error != nil {
		return value, &ReplayedError{Report: c.report, message: s.Error.Message, code: s.Error.Code}
	}
	return value, nil
}
