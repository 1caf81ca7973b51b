package shardstore

import (
	"context"
	"slices"

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

// A capability reports whether a store has an optional interface.
type capability func(driver.Store) bool

func has[T any](s driver.Store) bool {
	_, ok := s.(T)
	return ok
}

// capabilities are in a chain, as tieredstore has them: each counts only with those before it.
var capabilities = []capability{
	has[driver.Seizer], has[driver.Lister], has[driver.StepStore], has[driver.Auditor], has[driver.Counter],
}

func hasAll(s driver.Store, needed []capability) bool {
	return !slices.ContainsFunc(needed, func(has capability) bool { return !has(s) })
}

// promise returns s with the optional interfaces that all shards have which are open. The others will need them.
func (s *store) promise() driver.Store {
	n := len(capabilities)
	for _, h := range s.shards {
		for h.store != nil && !hasAll(h.store, capabilities[:n]) {
			n--
		}
	}
	s.needs = capabilities[:n]
	with := counting{auditing{stepping{listing{seizing{s, seizer{s}}, lister{s}}, stepper{s}}, auditor{s}}, counter{s}}
	return []driver.Store{s, with.seizing, with.listing, with.stepping, with.auditing, with}[n]
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
	err = here.call(func(s driver.Store) (err error) {
		rec, err = s.(driver.Seizer).Seize(ctx, id, t)
		return err
	})
	return rec, err
}

// Forget implements [driver.Seizer].
func (z seizer) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	return z.s.pair(&id).owned(func(h *shard) (forgot bool, err error) {
		err = h.call(func(s driver.Store) error {
			forgot, err = s.(driver.Seizer).Forget(ctx, id, by)
			return err
		})
		return forgot, err
	})
}

type stepper struct{ s *store }

// SaveStep implements [driver.StepStore].
func (p stepper) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	return p.s.pair(&id).owned(func(h *shard) (owned bool, err error) {
		err = h.call(func(s driver.Store) error {
			owned, err = s.(driver.StepStore).SaveStep(ctx, id, by, name, result)
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
	err = h.ask(ctx, func(s driver.Store) (err error) {
		saved, err = s.(driver.StepStore).Steps(ctx, id)
		return err
	})
	return saved, err
}
