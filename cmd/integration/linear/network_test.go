package linear

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestANetworkLosesRequestsAndRepliesAndDeliversSomeLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n network
		dice := rand.New(rand.NewPCG(1, 2))
		fates := map[string]int{}
		for range 2000 {
			var ran, left atomic.Bool
			r, err := n.carry(t.Context(), dice, func(ctx context.Context) (reply, error) {
				select {
				case <-time.After(time.Millisecond):
					ran.Store(true)
					return reply{owned: true}, nil
				case <-ctx.Done():
					left.Store(true)
					return reply{}, ctx.Err()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			then := ran.Load()
			n.late.Wait()
			switch {
			case !r.lost && r.owned && ran.Load():
				fates["replied"]++
			case r.lost && left.Load():
				fates["left"]++
			case r.lost && then:
				fates["reply lost"]++
			case r.lost && ran.Load():
				fates["late"]++
			case r.lost:
				fates["request lost"]++
			default:
				t.Fatalf("a reply %+v of a verb that ran: %t", r, ran.Load())
			}
		}
		for _, fate := range []string{"replied", "left", "reply lost", "late", "request lost"} {
			if fates[fate] < 10 {
				t.Errorf("%d times in 2000: %s", fates[fate], fate)
			}
		}
	})
}
