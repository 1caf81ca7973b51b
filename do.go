package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Key identifies an operation of [Do]: who asks, and the key that they chose.
type Key struct {
	Scope string // principal or tenant; not empty
	Value string // as Policy.KeyFormat demands
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
type ReplayedError struct{ message, code string }

func (e *ReplayedError) Error() string { return e.message }

// Code returns the code of the first error, "" if it had none.
func (e *ReplayedError) Code() string { return e.code }

// Do runs fn once for a key, and gives every repeat with the same request the first result, as JSON decodes it. It is
// the guard for jobs, commands and RPC. A refusal is a [*Problem], which unwraps to [ErrInProgress], [ErrKeyReused] and
// so on.
//
// fn gets a context with ctx's values but not its cancellation, and Policy.MaxRun as its deadline; [FromContext] finds
// its operation. If ctx ends first, or Policy.Patience passes, Do returns [ErrOutcomePending] and fn goes on; a repeat
// gets its result.
func Do[T any](ctx context.Context, g *Guard, key Key, request Fingerprinter, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	started := time.Now()
	a, p := g.doAsk(key, request)
	if p != nil {
		return zero, g.doDecided(ctx, a, nil, started, resultOf(p.Code), p)
	}
	run, rec, p := g.enter(ctx, a)
	switch {
	case p != nil:
		return zero, g.doDecided(ctx, a, nil, started, resultOf(p.Code), p)
	case rec != nil:
		value, err := replayResult[T](g, rec)
		if errors.As(err, &p) {
			return zero, g.doDecided(ctx, a, nil, started, resultOf(p.Code), p)
		}
		g.doDecided(ctx, a, nil, started, ResultReplayed, nil) //nolint:errcheck // without a problem it returns nil
		return value, err
	}
	j := &job[T]{g: g, run: run, ended: make(chan struct{})}
	go j.do(fn)
	if g.policy.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, started.Add(g.policy.Patience))
		defer cancel()
	}
	select {
	case <-j.ended:
	case <-ctx.Done():
		return zero, g.doDecided(ctx, a, run, started, ResultFailed, g.problem(CodeOutcomePending, "the operation goes on").because(ctx.Err()))
	}
	value, err := j.result()
	if errors.As(err, &p) && j.how != settledOwn || j.lost {
		return value, g.doDecided(ctx, a, run, started, resultOf(p.Code), p)
	}
	g.doDecided(ctx, a, run, started, ResultExecuted, nil) //nolint:errcheck // without a problem it returns nil
	return value, err
}

// doAsk makes the ask of a call, or refuses it.
func (g *Guard) doAsk(key Key, request Fingerprinter) (*ask, *Problem) {
	a := &ask{
		kind: KindDo, scope: key.Scope, key: key.Value, operation: g.policy.Operation,
		id: g.identity.id(KindDo, key.Scope, key.Value), wait: g.policy.Wait,
	}
	if key.Scope == "" {
		return a, g.problem(CodeScopeInvalid, "the scope is empty")
	}
	if err := checkKey(key.Value, &g.policy.KeyFormat); err != nil {
		return a, g.problem(CodeKeyInvalid, keyDetail(err)).because(err)
	}
	b, err := request.FingerprintBytes()
	if err != nil {
		return a, g.problem(CodeRequestUnreadable, "").because(fmt.Errorf("fingerprint the request: %w", err))
	}
	d := g.identity.start("semel do request 1")
	d.bytes(b)
	sum := d.sum()
	copy(a.fingerprint.Raw[:], sum[:])
	a.fingerprint.Canonical = a.fingerprint.Raw
	copy(a.fingerprint.Settings[:], "do 1")
	return a, nil
}

func (g *Guard) doDecided(ctx context.Context, a *ask, r *run, started time.Time, result Result, p *Problem) error {
	e := Event{
		Kind: EventDecision, Result: result, ID: a.id, Operation: a.operation, Duration: time.Since(started),
	}
	if r != nil {
		e.Attempt, e.Fence = uint32(r.op.Attempt), r.owner.Fence
	}
	if p != nil {
		e.Code, e.Err = p.Code, p.cause
	}
	g.observer.Observe(context.WithoutCancel(ctx), e)
	if p == nil {
		return nil
	}
	return p
}

// A job is one run of a function.
type job[T any] struct {
	g     *Guard
	run   *run
	ended chan struct{} // closed when the rest may be read

	value    T
	err      error
	returned bool
	thrown   any
	lost     bool
	rec      Record
	how      settled
}

// do runs fn and settles its outcome, however it ends. What fn throws is thrown again in Do, if that still waits.
func (j *job[T]) do(fn func(context.Context) (T, error)) {
	defer close(j.ended)
	defer func() { j.thrown = recover() }()
	defer j.finish()
	j.value, j.err = fn(&j.run.ctx)
	j.returned = true
}

func (j *job[T]) finish() {
	j.run.lease.handlerEnded()
	if !j.returned {
		j.run.event(EventPanic, nil)
	}
	j.rec, j.how = j.run.settle(j.outcome())
}

func (j *job[T]) outcome() Outcome {
	p := j.g.policy
	lost := j.run.op.lost.Load()
	switch {
	case !j.returned:
		return Outcome{State: p.lostState(), Error: "the function did not return"}
	case lost != nil:
		j.lost = true
		return Outcome{State: p.lostState(), Error: errorText(lost.err)}
	}
	var final *finalError
	v := Verdict(j.run.op.verdict.Load())
	if v == VerdictDefault {
		v = VerdictKeep
		if j.err != nil && !errors.As(j.err, &final) && p.OnError == ReleaseErrors {
			v = VerdictRelease
		}
	}
	if v == VerdictRelease {
		return Outcome{State: Free, Error: errorText(j.err)}
	}
	body, err := storedResult(j.value, j.err)
	if err == nil && int64(len(body)) > p.MaxResponseBody {
		err = errors.New("the result is larger than Policy.MaxResponseBody")
	}
	if err != nil {
		j.run.event(EventNotReplayable, err)
		return Outcome{State: Done}
	}
	r := &Response{}
	r.Body, r.Codec = j.g.codecs.pack(body, p.CompressAbove)
	return Outcome{State: Done, Response: r}
}

// result is what the call returns once its run has ended.
func (j *job[T]) result() (T, error) {
	var zero T
	switch {
	case j.thrown != nil:
		panic(j.thrown)
	case !j.returned:
		runtime.Goexit()
	case j.how == settledLater:
		return zero, j.g.problem(CodeOutcomePending, "")
	case j.how == settledFenced:
		return fencedResult[T](j.g, &j.run.ask, &j.rec)
	case j.lost:
		return zero, j.g.lostProblem()
	}
	return j.value, j.err
}

// fencedResult is what a late owner's call returns: what the record says, never its own result.
func fencedResult[T any](g *Guard, a *ask, rec *Record) (T, error) {
	var zero T
	if rec.State == Absent || !rec.Fingerprint.Equal(a.fingerprint) {
		return zero, g.problem(CodeOutcomeUnknown, "")
	}
	switch rec.Reads(g.policy.OnLost) {
	case ReadsDone:
		return replayResult[T](g, rec)
	case ReadsRunning, ReadsFree:
		return zero, g.inProgress(rec)
	}
	return zero, g.problem(CodeOutcomeUnknown, "")
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
func replayResult[T any](g *Guard, rec *Record) (value T, err error) {
	if rec.State != Done || rec.Response == nil {
		return value, g.problem(CodeReplayUnavailable, "")
	}
	body, err := g.codecs.unpack(rec.Response, max(g.policy.MaxResponseBody, DefaultMaxResponseBody))
	var s storedJSON
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err == nil && s.Error == nil {
		err = json.Unmarshal(s.Value, &value)
	}
	switch {
	case err != nil:
		return value, g.problem(CodeReplayUnavailable, "the stored result does not decode").because(err)
	case s.Error != nil:
		return value, &ReplayedError{message: s.Error.Message, code: s.Error.Code}
	}
	return value, nil
}
