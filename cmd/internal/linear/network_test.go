package linear

import (
	"context"
	"math/rand/v2"
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
			var ran, left bool
			r, err := n.carry(t.Context(), dice, true, func(ctx context.Context) (reply, error) {
				select {
				case <-time.After(time.Millisecond):
					ran = true
					return reply{owned: true}, nil
				case <-ctx.Done():
					left = true
					return reply{}, ctx.Err()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			then := ran
			n.late.Wait()
			switch {
			case !r.lost && r.owned && ran:
				fates["replied"]++
			case r.lost && left:
				fates["left"]++
			case r.lost && then:
				fates["reply lost"]++
			case r.lost && ran:
				fates["late"]++
			case r.lost:
				fates["request lost"]++
			default:
				t.Fatalf("a reply %+v of a verb that ran: %t", r, ran)
			}
		}
		for _, fate := range []string{"replied", "left", "reply lost", "late", "request lost"} {
			if fates[fate] < 10 {
				t.Errorf("%d times in 2000: %s", fates[fate], fate)
			}
		}
	})
}

func TestANetworkDoesNotCutOffWhatMustNotBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n network
		dice := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			if _, err := n.carry(t.Context(), dice, false, func(ctx context.Context) (reply, error) {
				if _, cut := ctx.Deadline(); cut {
					t.Error("it has a deadline")
				}
				return reply{}, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		n.late.Wait()
	})
}
