package shardstore

import (
	"context"

	"github.com/semelhq/semel/driver"
)

// Each adds to the one before what one more optional interface asks for.
type (
	seizing struct {
		*store
		seizer
	}
	listing struct {
		seizing
		lister
	}
	stepping struct {
		listing
		stepper
	}
	auditing struct {
		stepping
		auditor
	}
	counting struct {
		auditing
		counter
	}
)

// capable returns s with the optional interfaces that all shards have, in a chain, as tieredstore has them.
func (s *store) capable() driver.Store {
	with := counting{auditing{stepping{listing{seizing{s, seizer{s}}, lister{s}}, stepper{s}}, auditor{s}}, counter{s}}
	switch {
	case !all[driver.Seizer](s):
		return s
	case !all[driver.Lister](s):
		return with.seizing
	case !all[driver.StepStore](s):
		return with.listing
	case !all[driver.Auditor](s):
		return with.stepping
	case !all[driver.Counter](s):
		return with.auditing
	}
	return with
}

// all reports whether all shards have an optional interface.
func all[T any](s *store) bool {
	for _, h := range s.shards {
		if _, ok := h.store.(T); !ok {
			return false
		}
	}
	return true
}

type seizer struct{ s *store }

// Seize implements [driver.Seizer], in the shard that has the operation.
func (z seizer) Seize(ctx context.Context, id driver.ID, t driver.Token) (rec driver.Record, err error) {
	p := z.s.pair(&id)
	here := p.begin
	if p.other != nil {
		looked, err := p.look(ctx, id)
		if err != nil {
			return rec, err
		}
		here, _ = p.chosen(&looked)
	}
	err = here.call(func() (err error) {
		rec, err = here.store.(driver.Seizer).Seize(ctx, id, t)
		return err
	})
	return rec, err
}

// Forget implements [driver.Seizer].
func (z seizer) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	return z.s.pair(&id).owned(func(h *shard) (forgot bool, err error) {
		err = h.call(func() error {
			forgot, err = h.store.(driver.Seizer).Forget(ctx, id, by)
			return err
		})
		return forgot, err
	})
}

type stepper struct{ s *store }

// SaveStep implements [driver.StepStore].
func (p stepper) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	return p.s.pair(&id).owned(func(h *shard) (owned bool, err error) {
		err = h.call(func() error {
			owned, err = h.store.(driver.StepStore).SaveStep(ctx, id, by, name, result)
			return err
		})
		return owned, err
	})
}

// Steps implements [driver.StepStore]. The shard that has not the operation may have a run that is about to be released,
// which has saved nothing. So the results are those of both.
func (p stepper) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	at := p.s.pair(&id)
	saved, err := at.begin.steps(ctx, id)
	if err != nil || at.other == nil {
		return saved, err
	}
	s, err := at.look(ctx, id)
	if err != nil {
		return nil, err
	}
	more, err := at.other.steps(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case weight(&s.begin) == nothing: // its steps are those of an operation that has expired
		return more, nil
	case weight(&s.other) > nothing && len(saved) == 0:
		return more, nil
	}
	return saved, nil
}

func (h *shard) steps(ctx context.Context, id driver.ID) (saved map[string][]byte, err error) {
	err = h.ask(ctx, func() (err error) {
		saved, err = h.store.(driver.StepStore).Steps(ctx, id)
		return err
	})
	return saved, err
}
