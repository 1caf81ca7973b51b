package semel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/keyformat"
	"github.com/semelhq/semel/internal/storedrequest"
	"github.com/semelhq/semel/refusal"
)

// Key identifies an operation of [Do]: who asks, what is asked for, and the key that the caller chose.
type Key struct {
	// Kind keeps the operations of one face from those of others: the same scope and value of two kinds are two
	// operations. KindHTTP is refused: a result of Do is no answer to an HTTP request. Defaults to [KindDo].
	Kind  Kind
	Scope string // principal or tenant; not empty
	// Operation names what is asked for, such as "send invoice" or "/shop.Payments/Charge": the function, not the call.
	// It is part of the comparison: the same key with another name is [refusal.KeyReused], so that no function gets
	// another function's result. Under Policy.PerOperation it is another operation. 1 to 255 bytes of UTF-8 without
	// NUL; it shows in records, events and logs. Defaults to Policy.Operation.
	Operation string
	Value     string // as Policy.KeyFormat demands
}

// A Fingerprinter describes a request in bytes. The bytes of two requests are equal exactly if the requests are.
//
// A Fingerprinter may also have a method StoredRequest() []byte. Then Policy.Complete stores these bytes instead. They
// may hold more than what is compared, such as the version of the code that began the operation.
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

// Final marks an error as an outcome. It is stored, and replayed to repeats with the same message, and with the same
// code if it has a method Code() string. Other errors count like a 5xx: Policy.OnError decides.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

// IsFinal reports whether [Final] has marked err, or an error that err wraps. The stored error that a repeat gets is
// not marked.
func IsFinal(err error) bool {
	var final *finalError
	return errors.As(err, &final)
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
// [refusal.KeyReused] and so on. If there is an error, the value is zero. If the key has no Operation, and the guard's
// policy names none either, the error is [ErrOperationName]. [WithReport] tells whether a result is a replay.
//
// The type of a result is not stored. encoding/json encodes the first result, and decodes it into T as T is at the time
// of the repeat. A result that can't be decoded is replay-unavailable; fields that T does not have are ignored.
//
// fn gets a context with ctx's values but not its cancellation, and with Policy.MaxRun as its deadline. [FromContext]
// finds the operation in it. If ctx ends first, or Policy.Patience passes, Do returns [refusal.OutcomePending] and fn
// goes on; a repeat gets its result. If ctx ends before fn has begun, fn is not run. Then Do returns
// [refusal.StoreUnavailable] as soon as the store has replied, within seconds. If fn panics or calls runtime.Goexit, Do
// does the same, once the outcome is settled.
//
// A transaction that fn begins ([RunTx]) settles the operation in its commit. So the result has to be known in it: use
// [DoTx], or no result, which is a T of struct{}. What such an fn returns after the commit is not told.
//
// The parts of the policy that are about HTTP requests and answers do not apply, nor does Policy.ObserveOnly.
func Do[T any](ctx context.Context, g *Guard, key Key, of Fingerprinter, fn func(context.Context) (T, error)) (value T, err error) {
	c := call{request: request{g: g, started: time.Now()}, ctx: ctx}
	if to := reportTo(ctx); to != nil {
		defer func() { *to = c.report }()
	}
	if err := c.name(key); err != nil {
		return value, err
	}
	var rec driver.Record
	p := c.identify(key, of)
	if p == nil {
		p = c.obtain(&rec)
	}
	switch {
	case c.run != nil:
		return runJob(&c, fn)
	case p == nil:
		return replayResult[T](&c, &rec)
	case g.opens(p):
		defer c.decided(ctx, decision{result: event.Bypassed})
		return fn(outside(ctx))
	}
	return refused[T](&c, p)
}

// A call is one call of Do and what becomes of it.
type call struct {
	request
	ctx    context.Context
	report Report
}

// name fills in the operation's name. An error is about the call, not about what its caller asks for.
func (c *call) name(key Key) error {
	c.ask.kind, c.ask.Operation = cmp.Or(key.Kind, KindDo), key.Operation
	if key.Operation == "" {
		c.ask.Operation = c.g.policy.Operation
	}
	err := checkName(c.ask.Operation)
	if err == nil {
		return nil
	}
	c.ask.Operation = ""
	err = fmt.Errorf("semel: do: %w: %w; Key.Operation or Policy.Operation says it", ErrOperationName, err)
	c.decided(c.ctx, decision{result: event.Refused, err: err})
	return err
}

// locate fills in the identity of the operation.
func (c *call) locate(key Key) *Problem {
	g, p := c.g, c.g.policy
	if key.Scope == "" {
		return g.problem(refusal.ScopeInvalid, "the scope is empty")
	}
	if key.Kind == KindHTTP {
		return g.problem(refusal.ScopeInvalid, "the kind of an operation of Do can't be http")
	}
	value, err := keyformat.Check(key.Value, p.KeyFormat.format())
	if err != nil {
		return g.problem(refusal.KeyInvalid, detailOf(err, refusal.KeyInvalid)).because(err)
	}
	c.ask.kind = cmp.Or(key.Kind, KindDo)
	c.ask.scope, c.ask.key = key.Scope, value
	if p.PerOperation {
		c.ask.key += "\x00" + cmp.Or(c.ask.Operation, key.Operation, p.Operation) // a key holds no NUL
	}
	c.ask.ID = g.identity.ID(string(c.ask.kind), c.ask.scope, c.ask.key)
	return nil
}

// identify fills in what identifies the operation that the call asks for.
func (c *call) identify(key Key, of Fingerprinter) *Problem {
	if p := c.locate(key); p != nil {
		return p
	}
	g, p := c.g, c.g.policy
	b, err := of.FingerprintBytes()
	if err != nil {
		c.ask.ID = driver.ID{}
		return g.problem(refusal.RequestUnreadable, "").because(fmt.Errorf("fingerprint the request: %w", err))
	}
	d := g.identity.Start("semel do request 1")
	d.Text(c.ask.Operation)
	d.Bytes(b)
	sum := d.Sum()
	copy(c.ask.Fingerprint.Raw[:], sum[:])
	c.ask.Fingerprint.Canonical = c.ask.Fingerprint.Raw
	copy(c.ask.Fingerprint.Settings[:], "do 2") // in "do 1", operations could have no name

	if p.Complete {
		if stored, ok := of.(interface{ StoredRequest() []byte }); ok {
			b = stored.StoredRequest()
		}
		value, _, _ := strings.Cut(c.ask.key, "\x00")
		c.ask.Correlation = value // it names the operation for operators once the stored request is gone
		s := storedrequest.Request{Kind: string(c.ask.kind), Operation: c.ask.Operation, Scope: key.Scope, Key: value, Body: b}
		c.ask.Sealed = s.Seal(g.keyring, c.ask.ID)
	}
	if c.ask.Wait = p.Wait; p.Patience > 0 {
		c.ask.Wait = min(p.Wait, p.Patience)
	}
	return nil
}

func refused[T any](c *call, p *Problem) (zero T, err error) {
	c.decided(c.ctx, c.refusing(p))
	return zero, p
}

// A job is one run of a function.
type job[T any] struct {
	*call
	policy *policy
	op     Operation
	ended  chan struct{} // closed when the rest may be read

	value    T
	err      error
	returned bool
	settled  bool      // the settle returned: how says with what result
	frozen   *result   // with which the last transaction tried to commit
	broken   *brokenBy // by fn, or by the code that read or stored its result
	decision engine.Decision
	rec      driver.Record
	how      engine.Settlement
}

// A brokenBy says how a function ended without returning.
type brokenBy struct{ value any } // that it panicked with; nil if it ended by runtime.Goexit

// runJob runs fn and returns its result. If fn panicked or called runtime.Goexit, runJob does the same. If fn still
// runs, runJob returns an error that says so.
func runJob[T any](c *call, fn func(context.Context) (T, error)) (T, error) {
	j := &job[T]{call: c, policy: c.g.policy, ended: make(chan struct{})}
	c.begin(&j.op, j)
	if len(c.run.Sealed()) > 0 {
		c.run.Promise()
	}
	go j.do(fn)
	err := j.wait()
	switch {
	case err != nil:
		return refused[T](c, c.g.problem(refusal.OutcomePending, "the operation goes on").because(err))
	case j.broken == nil:
		return j.result()
	}
	c.decided(c.ctx, decision{result: event.Failed})
	if j.broken.value == nil {
		runtime.Goexit()
	}
	panic(j.broken.value)
}

// wait returns nil when the job has ended. It returns an error when the call's context ends or Patience has passed.
func (j *job[T]) wait() error {
	ctx := j.ctx
	if patience := j.policy.Patience; patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, j.started.Add(patience))
		defer cancel()
	}
	select {
	case <-j.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do runs fn and settles its outcome, however fn ends. If fn panics or calls runtime.Goexit, runJob does the same, if
// Do still waits.
func (j *job[T]) do(fn func(context.Context) (T, error)) {
	defer close(j.ended)
	defer func() {
		if value := recover(); !j.settled { // the store has ended this goroutine
			j.broken = &brokenBy{value}
		}
	}()
	defer j.finish()
	j.value, j.err = fn(j.run.Context())
	j.returned = true
}

func (j *job[T]) finish() {
	if value := recover(); !j.returned {
		j.broken = &brokenBy{value}
	}
	j.run.Close()
	defer j.settle()
	j.judge()
}

func (j *job[T]) settle() {
	j.run.HandlerEnded()
	if !j.returned {
		j.run.Tell(event.Panic, panicError(j.broken.value))
	}
	j.rec, j.how = j.run.Settle(j.decision.Outcome)
	if j.how == engine.SettleAcknowledged && j.run.Committed() && j.frozen != nil {
		j.value, _ = j.frozen.value.(T) // it is nil if T is an interface and the value is nil
		j.err = j.frozen.err
	}
	j.settled = true
}

// judge decides with which outcome the run is settled. A result or an error that panics when it is read is lost: it
// counts as if fn itself had panicked.
func (j *job[T]) judge() {
	judged := false
	defer func() {
		if value := recover(); !judged {
			j.broken, j.returned = &brokenBy{value}, false
			j.decision = j.run.Decide(engine.Ending{})
		}
	}()
	j.decision = j.run.Decide(engine.Ending{Returned: j.returned, Success: j.err == nil, Decide: func(nothing bool) engine.Decision {
		return engine.Decision{Outcome: j.decide(nothing, j.value, j.err)}
	}})
	judged = true
}

// decide returns the outcome with which a result is settled. nothing means that an error says that nothing has
// happened.
func (j *job[T]) decide(nothing bool, value T, result error) driver.Outcome {
	p, v := j.policy, j.op.asked()
	if v == VerdictDefault {
		v = VerdictKeep
		if result != nil && !IsFinal(result) && (nothing || p.byRules(http.StatusInternalServerError, nil) == VerdictRelease) {
			v = VerdictRelease
		}
	}
	if v == VerdictRelease || v == VerdictUnknown {
		why := "released"
		if v == VerdictUnknown {
			why = "said to be unknown"
		}
		if result != nil {
			why = result.Error()
		}
		return driver.Outcome{State: p.stateFor(v), Error: why}
	}
	if p.NoStore {
		return driver.Outcome{State: driver.Done}
	}
	body, err := storedResult(value, result)
	if err == nil && int64(len(body)) > p.MaxResponseBody {
		err = errors.New("the result is larger than Policy.MaxResponseBody")
	}
	if err != nil {
		j.run.Tell(event.NotReplayable, err)
		return driver.Outcome{State: driver.Done}
	}
	r := &driver.Response{}
	r.Body, r.Codec = j.g.codecs.Pack(body, p.CompressAbove)
	return driver.Outcome{State: driver.Done, Response: r}
}

// Mark, Rewind and Ended have nothing to do: decide is asked again about the function's result.

func (*job[T]) Mark() error { return nil }
func (*job[T]) Rewind(bool) {}
func (*job[T]) Ended()      {}

// Freeze decides by the result that the function of a DoTx has returned.
func (j *job[T]) Freeze(err error) (driver.Outcome, bool, error) {
	r := j.op.result
	switch {
	case r == nil && err != nil:
		return driver.Outcome{State: driver.Free}, false, nil //nolint:nilerr // the error is the caller's decision
	case r == nil && onlyValue[T]():
		r = &result{}
	case r == nil:
		return driver.Outcome{}, false, fmt.Errorf("%w: in Do a transaction has to know the result: use DoTx, or the store's own Do", refusal.NoAnswer)
	}
	j.frozen = r
	value, _ := r.value.(T) // r.value is nil if T is an interface and the value is nil
	return j.decide(false, value, r.err), err == nil || IsFinal(err), nil
}

// onlyValue reports whether T is struct{}: whatever the function returns without an error is known before it returns.
func onlyValue[T any]() bool {
	var value T
	_, only := any(value).(struct{})
	return only
}

// result is what the call returns once its run has ended. It is not used if the run is broken.
func (j *job[T]) result() (value T, err error) {
	p, stored := j.told(j.decision, j.how)
	if stored {
		if p = j.overtaken(&j.rec); p == nil {
			return replayResult[T](j.call, &j.rec)
		}
	}
	if p != nil {
		if p.Code == refusal.StoreUnavailable {
			p = p.because(j.err)
		}
		return refused[T](j.call, p)
	}
	if j.op.asked() == VerdictUnknown && j.err == nil {
		return refused[T](j.call, j.call.g.problem(refusal.OutcomeUnknown, "the function has said so"))
	}
	result, code := j.op.counts()
	j.decided(j.ctx, decision{result: result, code: code})
	j.report = reportOf(&j.rec, j.run.Attempt())
	if j.err != nil {
		return value, j.err
	}
	return j.value, nil
}

// A storedJSON is a result in its stored form.
type storedJSON struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error *storedError    `json:"error,omitempty"`
}

type storedError struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
}

func storedResult(value any, err error) ([]byte, error) {
	if _, none := value.(struct{}); none && err == nil {
		return []byte(`{"value":{}}`), nil
	}
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

// replayResult returns the stored result to a repeat.
func replayResult[T any](c *call, rec *driver.Record) (value T, err error) {
	if rec.State != driver.Done || rec.Response == nil {
		return refused[T](c, c.g.problem(refusal.ReplayUnavailable, ""))
	}
	s, err := c.g.openResult(c.ctx, c.ask.ID, rec)
	if err == nil && s.Error == nil {
		err = json.Unmarshal(s.Value, &value)
	}
	if err != nil {
		c.g.engine.Failed(c.ctx, "replay", c.ask.ID, fmt.Errorf("read the stored result: %w", err))
		return refused[T](c, c.g.problem(refusal.ReplayUnavailable, "the stored result does not decode").because(err))
	}
	c.decided(c.ctx, decision{result: event.Replayed})
	c.report = reportOf(rec, int(rec.Attempt))
	c.report.Replayed = true
	if s.Error != nil {
		return value, &ReplayedError{Report: c.report, message: s.Error.Message, code: s.Error.Code}
	}
	return value, nil
}
