package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semelhq/semel/refusal"
)

var (
	// ErrExhausted means that a call was worth another attempt but did not get it; [Error].Reason says why. The
	// operation may have taken effect: only the same key may be used to find out.
	ErrExhausted = errors.New("retries exhausted")
	// ErrBodyNotRepeatable means that the request's body can't be sent a second time. If it is larger than
	// Options.MaxBody and has no GetBody, nothing was sent.
	ErrBodyNotRepeatable = errors.New("request body can't be sent again")
	// ErrAnswerTooLarge means that the server has answered with more than Options.MaxAnswer. Trying again won't help.
	ErrAnswerTooLarge = errors.New("answer larger than allowed")
	// ErrCrossOrigin means that a redirect leads to another origin, where the key may not go unless Options.CrossOrigin
	// names it. Nothing was sent there.
	ErrCrossOrigin = errors.New("redirect of a request with a key to another origin")
)

// errAskElsewhere ends a call whose operation is said to be where it may not be asked about.
var errAskElsewhere = errors.New("client: the redirect of a question about an operation can't be followed")

// errAttemptTimeout is the cause with which an attempt's context ends after Options.AttemptTimeout.
var errAttemptTimeout error = attemptTimeout{}

type attemptTimeout struct{}

func (attemptTimeout) Error() string { return "no answer within the time of an attempt" }
func (attemptTimeout) Timeout() bool { return true }

// Reason says why a call was not sent again although that was worth it.
type Reason string

// The reasons.
const (
	ReasonAttempts   Reason = "attempts"    // Options.MaxAttempts
	ReasonBudget     Reason = "budget"      // Options.Budget
	ReasonDeadline   Reason = "deadline"    // the next delay would have passed the context's
	ReasonRetention  Reason = "retention"   // Options.MaxAge: the server may have forgotten the key, and run it again
	ReasonRetryAfter Reason = "retry-after" // the server asks for more patience than Options.MaxRetryAfter
)

// An Error is the end of a call without the operation's own answer. errors.Is finds in it [ErrExhausted]; the sentinel
// of the problem with which the server refused, such as [refusal.KeyReused], [refusal.InProgress],
// [refusal.OutcomeUnknown], [refusal.ReplayUnavailable] or [refusal.KeyExpired]; [refusal.OutcomePending] for an answer
// from which that can't be told; and the error of the last attempt. Its text does not show the key.
type Error struct {
	// Key is the call's key; its Value is "" if it has none.
	Key Key
	// Attempts is how often the request was sent, over all hops of redirects; 0 means that nothing was.
	Attempts int
	// NotSent says that nothing of this call can have arrived: it was not sent, or no connection was made.
	NotSent bool
	// Reason says why it was not sent again; "" if that was not worth it.
	Reason Reason
	// RetryAt is when the server said to come again; the zero value if it did not, or only ever did in a streamed
	// answer.
	RetryAt time.Time
	// Answer is the last response that came, nil if none did. From [Transport].RoundTrip it is nil.
	Answer *Answer
	// Err is the error of the last attempt, nil if it was answered.
	Err error

	state error // what the answer, or that about the operation, says of its outcome
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("idempotent call")
	if e.Key.Value != "" {
		fmt.Fprintf(&b, " with key %s", e.Key.Digest())
	}
	fmt.Fprintf(&b, ", %d sent", e.Attempts)
	if e.Reason != "" {
		fmt.Fprintf(&b, ": %v by %s", ErrExhausted, e.Reason)
		if !e.RetryAt.IsZero() {
			b.WriteString(", to come again at " + e.RetryAt.UTC().Format(time.RFC3339))
		}
	}
	switch {
	case e.Err != nil:
		b.WriteString(": " + e.Err.Error())
	case e.state != nil:
		b.WriteString(": " + e.state.Error())
	case e.Answer != nil && e.Answer.Problem != nil:
		fmt.Fprintf(&b, ": %d %v", e.Answer.Status, e.Answer.Problem)
	case e.Answer != nil:
		fmt.Fprintf(&b, ": %d", e.Answer.Status)
	}
	return b.String()
}

// Unwrap returns what errors.Is and errors.As look through.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Reason != "" {
		errs = append(errs, ErrExhausted)
	}
	switch {
	case e.Err != nil:
		errs = append(errs, e.Err)
	case e.state != nil:
		errs = append(errs, e.state)
	case e.Answer != nil && e.Answer.Problem != nil:
		errs = append(errs, e.Answer.Problem)
	}
	return errs
}

// Timeout reports whether the last attempt ended by a timeout. [net/url.Error] asks for it.
func (e *Error) Timeout() bool {
	var t interface{ Timeout() bool }
	return e.Err != nil && errors.As(e.Err, &t) && t.Timeout()
}

// stateError returns the error that the state of an operation stands for, nil if it has ended.
func stateError(state string) error {
	switch state {
	case stateRunning:
		return refusal.InProgress
	case stateUnknown:
		return refusal.OutcomeUnknown
	case stateExpired:
		return refusal.KeyExpired
	case stateRefused:
		return refusal.OutcomePending
	}
	return nil
}
