package batch

import "fmt"

// PanicError is the error of an item whose function did not return. Its run is settled as lost: Policy.OnLost decides.
// An item also gets it for what its Fingerprinter, or the store, has thrown.
type PanicError struct {
	Value any    // that it panicked with; nil if it ended by runtime.Goexit
	Stack []byte // of the goroutine at that moment, as [runtime/debug.Stack] formats it
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the function ended by runtime.Goexit"
	}
	return fmt.Sprintf("panic: %v", e.Value)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error) // most are none
	return err
}
