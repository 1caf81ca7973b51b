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
	// ErrRefused means that a message was refused for good: it goes to the dead letters at once. Publishers wrap it.
	ErrRefused = errors.New("message was refused for good")
)

// RetryAfter returns an error for a Publisher that says when the message is to be sent again. It wraps err. The relay
// then takes after in the place of its own backoff, at most for 10 years.
func RetryAfter(after time.Duration, err error) error {
	return &retryError{min(max(after, 0), maxDelay), err}
}

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string { return fmt.Sprintf("%v; to be sent again in %v", e.err, e.after) }
func (e *retryError) Unwrap() error { return e.err }
