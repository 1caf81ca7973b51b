package linear

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A network loses requests and replies, and delivers some requests when their sender has given up.
type network struct {
	late sync.WaitGroup // requests that are still under way
}

// soon bounds how late a request is, and after what time a client leaves: before some verbs are done, and after others.
const soon = 2 * time.Millisecond

// carry sends a verb once, and returns the reply, or that it was lost.
func (n *network) carry(ctx context.Context, dice *rand.Rand, verb func(context.Context) (reply, error)) (reply, error) {
	within := time.Duration(dice.Int64N(int64(soon)))
	switch dice.IntN(40) {
	case 0: // the request is lost
		return reply{lost: true}, nil
	case 1: // the reply is lost
		_, err := verb(ctx)
		return reply{lost: true}, err
	case 2: // the request arrives late
		n.late.Go(func() {
			time.Sleep(within)
			verb(ctx) //nolint:errcheck // nobody waits for it any more
		})
		return reply{lost: true}, nil
	case 3: // the client leaves
		left, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		r, err := verb(left)
		if err != nil && left.Err() != nil {
			return reply{lost: true}, nil
		}
		return r, err
	}
	return verb(ctx)
}
