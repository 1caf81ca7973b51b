package verify

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A target is what a scenario asks.
type target struct {
	scenario *Scenario
	wire     *wire
}

const (
	shellDelay = time.Second // for what a command's children print
	readyPoll  = 50 * time.Millisecond
	readyLimit = 30 * time.Second
)

func newTarget(s *Scenario) *target {
	return &target{s, &wire{base: s.base, timeout: time.Duration(s.Timeout)}}
}

// crash ends the target at once.
func (t *target) crash(ctx context.Context) error {
	_, err := t.shell(ctx, t.scenario.Process.Crash)
	return err
}

// restart starts the target again, and waits until it can be asked.
func (t *target) restart(ctx context.Context) error {
	if _, err := t.shell(ctx, t.scenario.Process.Restart); err != nil {
		return err
	}
	return t.ready(ctx)
}

func (t *target) pause(ctx context.Context) error {
	_, err := t.shell(ctx, t.scenario.Process.Pause)
	return err
}

func (t *target) resume(ctx context.Context) error {
	_, err := t.shell(ctx, t.scenario.Process.Resume)
	return err
}

var errNotReady = errors.New("it can't be asked")

// ready waits until the target can be asked.
func (t *target) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		err := t.alive(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", t.scenario.Target, errNotReady, err)
		case <-time.After(readyPoll):
		}
	}
}

func (t *target) alive(ctx context.Context) error {
	if t.scenario.Process.Ready == "" {
		conn, err := t.wire.dial(ctx, "")
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	a := t.wire.exchange(ctx, request{method: "GET", path: t.scenario.Process.Ready}, manner{})
	if a.err == nil && a.status/100 != 2 {
		return fmt.Errorf("GET %s: status %d", t.scenario.Process.Ready, a.status)
	}
	return a.err
}

// Await waits until the target of a complete scenario can be asked.
func Await(ctx context.Context, s *Scenario) error { return newTarget(s).ready(ctx) }
