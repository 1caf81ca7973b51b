package outbox

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrInvalid means that a message can't be added: its id, topic, key, tenant, headers, delay or size are not allowed.
	ErrInvalid = errors.New("message is invalid")
	// ErrDuplicate means that the outbox has a message with the same id.
	ErrDuplicate = errors.New("message id is in the outbox already")
	// ErrNoTx means that Add was called without a transaction, or with one that has ended.
	ErrNoTx = errors.New("there is no transaction to add the message in")
	// ErrBusy means that nothing was leased, and that another relay is looking at what there is.
	ErrBusy = errors.New("another relay is looking for messages")
	// ErrRefused means that a message was refused for good: it goes to the dead letters at once. Publishers wrap it.
	ErrRefused = errors.New("message was refused for good")
)

// RetryAfter returns an error for a Publisher that says how long the message is to wait at least, up to 10 years. It
// wraps err. The relay waits for longer if its own backoff does: a broker that always asks for a second must not use up
// the attempts of a message within a minute.
func RetryAfter(after time.Duration, err error) error {
	return &retryError{min(max(after, 0), maxDelay), err}
}

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string { return fmt.Sprintf("%v; to be sent again in %v", e.err, e.after) }
func (e *retryError) Unwrap() error { return e.err }
