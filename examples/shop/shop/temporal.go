package shop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/worker"

	"github.com/semelhq/semel/saga"
	"github.com/semelhq/semel/semeltemporal"
)

// temporalQueue is the task queue of all processes of a shop. Other shops have it in namespaces of their own.
const temporalQueue = "shop"

// onTemporal has Temporal run the sagas that begin from now on. Their steps are the same, and have the same keys.
func (s *Shop) onTemporal() error {
	t, err := semeltemporal.New(s.o.Temporal, temporalQueue, s.place, semeltemporal.Options{Lease: s.o.Lease})
	if err != nil {
		return fmt.Errorf("put the saga on Temporal: %w", err)
	}
	s.sagas = &engines{database: s.sagas, temporal: t}
	s.loops = append(s.loops, s.workOnTemporal)
	return nil
}

// registerOnTemporal makes the saga known to a worker.
func (s *Shop) registerOnTemporal(w worker.Registry) error {
	return semeltemporal.Register(w, s.o.Secrets.Derivation, s.place)
}

// workOnTemporal makes the calls of the sagas' steps until ctx ends. The error is at once if there is no Temporal.
func (s *Shop) workOnTemporal(ctx context.Context) error {
	w := worker.New(s.o.Temporal, temporalQueue, worker.Options{WorkerStopTimeout: 10 * time.Second})
	if err := s.registerOnTemporal(w); err != nil {
		return err
	}
	stop := make(chan any)
	defer context.AfterFunc(ctx, func() { close(stop) })()
	if err := w.Run(stop); err != nil {
		return fmt.Errorf("work on sagas of Temporal: %w", err)
	}
	return ctx.Err()
}

// engines are those of a shop on Temporal. A saga stays with the engine that has begun it: two that run one saga could
// end it in two ways.
type engines struct {
	database sagas // goes on with what it has begun before the shop was on Temporal
	temporal sagas
}

func (e *engines) Start(ctx context.Context, id string, p Placing) (*saga.Status[Placing], error) {
	engine := e.database
	if _, err := e.database.Status(ctx, id); errors.Is(err, saga.ErrNotFound) {
		engine = e.temporal
	} else if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return engine.Start(ctx, id, p)
}

func (e *engines) Status(ctx context.Context, id string) (*saga.Status[Placing], error) {
	status, err := e.database.Status(ctx, id)
	if !errors.Is(err, saga.ErrNotFound) {
		return status, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return e.temporal.Status(ctx, id)
}
