package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/internal/thrown"
)

// call calls f on a goroutine of its own: a handler that panics, or calls runtime.Goexit, ends that goroutine and not
// the loop that reads messages.
func call(f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errors.New("the handler called runtime.Goexit")
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
