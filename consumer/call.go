package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/internal/thrown"
)

// errGoexit is what a handler panics with that calls runtime.Goexit.
var errGoexit = errors.New("it called runtime.Goexit")

// returning calls a handler, and panics if it calls runtime.Goexit: semel.Do would do that again on the goroutine that
// reads messages, and a panic it can recover from.
func returning(handler func() error) error {
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			panic(value)
		}
		panic(errGoexit)
	}()
	err := handler()
	returned = true
	return err
}

// contained calls f, and makes an error of the panic of a handler.
func contained(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the handler panicked: %v", value)
		}
	}()
	return f()
}

// call calls f on a goroutine of its own: code that panics, or calls runtime.Goexit, ends that goroutine and not
// the loop that reads messages.
func call(f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() {
			if value := recover(); value != nil {
				err = fmt.Errorf("the handler panicked: %v", value)
			}
			result <- err
		}()
		err = f()
	}()
	return <-result
}

// keepAlive calls m.KeepAlive until the function is called that it returns.
func (c *Consumer) keepAlive(m *Message) (stop func()) {
	if m.KeepAlive == nil {
		return func() {}
	}
	ended := make(chan struct{})
	go func() {
		tick := time.NewTicker(c.o.KeepAlive)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				keepAlive(m) //nolint:errcheck // the broker delivers the message again, which is found out then
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended) }
}

func keepAlive(m *Message) (err error) {
	defer thrown.Catch(&err)
	return m.KeepAlive()
}
