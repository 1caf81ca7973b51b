package shop

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// complete has calls whose policy says Complete finished without their clients, if a process dies and nobody asks
// again. api is where they are served, below authentication: the completer runs a call for the user who made it.
func (s *Shop) complete(api http.Handler) error {
	o := semel.CompleterOptions{
		Interval: s.interval(),
		Principal: func(ctx context.Context, r *http.Request, scope string) (*http.Request, error) {
			tenant, subject, ok := strings.Cut(scope, "\x00")
			if !ok {
				return nil, fmt.Errorf("the scope %q is none of the shop's", scope)
			}
			return r.WithContext(context.WithValue(ctx, principalKey{}, Principal{tenant, subject})), nil
		},
	}
	if s.o.AtMostOnce {
		o.Reconcile = s.whatBecame
	}
	c, err := s.guard.Completer(api, o)
	if err != nil {
		return fmt.Errorf("make the completer: %w", err)
	}
	s.loops = append(s.loops, c.Run)
	return nil
}

// interval is the time between two looks for what dead processes have left.
func (s *Shop) interval() time.Duration { return cmp.Or(s.o.Lease, 30*time.Second) / 6 }
