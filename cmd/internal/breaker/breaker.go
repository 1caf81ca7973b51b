// Package breaker keeps requests from waiting for a store or a cache that has failed too often.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/semelhq/semel/driver"
)

// ErrOpen means that a call was not made: what it would have called has failed too often of late.
var ErrOpen = errors.New("circuit breaker is open")

// Options are a breaker's settings. The zero value of each field means the documented default.
type Options struct {
	// Name says in messages what is behind the breaker.
	Name string
	// Failures is how many calls in a row must fail to open it. Defaults to 5.
	Failures int
	// Open is how long it then refuses calls before it lets one try. Defaults to 1 s.
	Open time.Duration
	// Probes is how many calls may try at once after that, and how many in a row must succeed to close it; the first
	// that fails opens it again. Defaults to 1.
	Probes int
	// Log is told when it opens and closes. Defaults to nobody.
	Log *slog.Logger
}

// Defaults of [Options].
const (
	DefaultFailures = 5
	DefaultOpen     = time.Second
	DefaultProbes   = 1
)

// A Breaker is closed: calls are made; open: none are; or half open: a few are, to try. It is safe for concurrent use.
type Breaker struct {
	name string
	two  *gobreaker.TwoStepCircuitBreaker[struct{}]
}

// New returns a closed breaker. Fields that are zero or negative mean the default.
func New(o Options) *Breaker {
	if o.Failures <= 0 {
		o.Failures = DefaultFailures
	}
	if o.Open <= 0 {
		o.Open = DefaultOpen
	}
	if o.Probes <= 0 {
		o.Probes = DefaultProbes
	}
	settings := gobreaker.Settings{
		Name: o.Name, MaxRequests: uint32(o.Probes), Timeout: o.Open,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(o.Failures) },
		IsSuccessful: answered,
		IsExcluded:   left,
	}
	if o.Log != nil {
		settings.OnStateChange = func(name string, from, to gobreaker.State) {
			level := slog.LevelInfo
			if to == gobreaker.StateOpen {
				level = slog.LevelWarn
			}
			o.Log.Log(context.Background(), level, "circuit breaker is "+to.String(), "of", name, "was", from.String())
		}
	}
	return &Breaker{o.Name, gobreaker.NewTwoStepCircuitBreaker[struct{}](settings)}
}

// Allow returns an error that wraps [ErrOpen] if the call must not be made. Otherwise done must be called once, with
// the call's error. [driver.ErrFull] and [driver.ErrUnreadable] count as success: what answers so is there. One that
// wraps context.Canceled does not count at all: the caller left. Calls that began before the breaker last opened or
// closed don't count either.
func (b *Breaker) Allow() (done func(err error), err error) {
	done, err = b.two.Allow()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.name, ErrOpen)
	}
	return done, nil
}

// Open reports whether calls are refused, or only tried.
func (b *Breaker) Open() bool { return b.two.State() != gobreaker.StateClosed }

func answered(err error) bool {
	return err == nil || errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrUnreadable)
}

func left(err error) bool { return errors.Is(err, context.Canceled) }
