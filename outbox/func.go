package outbox

import (
	"context"
	"sync"

	"github.com/semelhq/semel/internal/thrown"
)

// Func returns a [Publisher] that sends each message by a call of send, which returns when the broker has acknowledged
// or refused it. At most so many calls of one batch run at once, at least 1.
func Func(atOnce int, send func(ctx context.Context, m *Message) error) Publisher {
	return &each{max(atOnce, 1), send}
}

type each struct {
	atOnce int
	send   func(context.Context, *Message) error
}

func (p *each) Publish(ctx context.Context, batch []*Message) []error {
	errs := make([]error, len(batch))
	next := make(chan int, len(batch))
	for i := range batch {
		next <- i
		errs[i] = errGoexit
	}
	close(next)
	var senders sync.WaitGroup
	for range min(p.atOnce, len(batch)) {
		senders.Go(func() {
			for i := range next {
				p.one(ctx, batch[i], &errs[i])
			}
		})
	}
	senders.Wait()
	return errs
}

func (p *each) one(ctx context.Context, m *Message, err *error) {
	defer thrown.Catch(err)
	if ctx.Err() != nil { // it would be late for the lease
		*err = ctx.Err()
		return
	}
	*err = p.send(ctx, m)
}
