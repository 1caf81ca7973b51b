// Package saga is exercise 10: a saga.
package saga

import (
	"context"
	"errors"
)

// ErrRefused means that a step was refused: nothing has happened. After any other error it may have happened.
var ErrRefused = errors.New("refused")

// A Step does something at another service. Undo takes it back; it does no harm if there is nothing to take back.
type Step struct {
	Name     string
	Do, Undo func(context.Context) error
}

// Run runs the steps one after the other. If one fails, everything is taken back that has happened or may have
// happened, the last first, and Run returns the step's error. Taking back can fail for a while too: it is tried up to
// ten times.
//
// Change this function.
func Run(ctx context.Context, steps []Step) error {
	for i, s := range steps {
		if err := s.Do(ctx); err != nil {
			for _, done := range steps[:i] {
				done.Undo(ctx) //nolint:errcheck // part of the exercise
			}
			return err
		}
	}
	return nil
}
