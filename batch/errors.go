package batch

import "fmt"

// PanicError is the error of an item whose function did not return. Its run is settled as lost: Policy.OnLost decides.
// An item also gets it if its Fingerprinter, or the store, has panicked or called runtime.Goexit.
type PanicError struct {
	Value any    // the value of the panic; nil if it was runtime.Goexit
	Stack []byte // the stack of the goroutine at that moment, as [runtime/debug.Stack] formats it
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the function ended by runtime.Goexit"
	}
	return fmt.Sprintf("panic: %v", e.Value)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error) // most values are not errors
	return err
}
