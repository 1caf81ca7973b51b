package tieredstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// Each adds to the one before what one more optional interface asks for.
type (
	seizing struct {
		*Store
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
		driver.Auditor
	}
	counting struct {
		auditing
		driver.Counter
	}
)

// lister adds what [driver.Scanner] asks for besides the verbs: the durable store's listings.
type lister struct{ driver.Lister }

// Scan implements [driver.Scanner], by the durable store. If that is none it returns an error that wraps
// [errors.ErrUnsupported].
func (l lister) Scan(ctx context.Context) error {
	if s, ok := l.Lister.(driver.Scanner); ok {
		return s.Scan(ctx)
	}
	return fmt.Errorf("tieredstore: scan: the durable store: %w", errors.ErrUnsupported)
}

// capable returns s with the optional interfaces that its durable store has. They are in a chain, and not in every
// combination, of which there would be 64: all stores of this project that last have a beginning of it.
func (s *Store) capable() driver.Store {
	var with counting
	with.Store = s
	lists, steps, audits, counts := false, false, false, false
	durable, seizes := s.durable.(driver.Seizer)
	with.seizer = seizer{s, durable}
	if seizes {
		with.Lister, lists = s.durable.(driver.Lister)
	}
	if lists {
		with.stepper.durable, steps = s.durable.(driver.StepStore)
	}
	if steps {
		with.Auditor, audits = s.durable.(driver.Auditor)
	}
	if audits {
		with.Counter, counts = s.durable.(driver.Counter)
	}
	t, transacts := s.durable.(driver.Transactor)
	tx := transactions{t}
	switch {
	case counts && transacts:
		return struct {
			counting
			transactions
		}{with, tx}
	case counts:
		return with
	case audits && transacts:
		return struct {
			auditing
			transactions
		}{with.auditing, tx}
	case audits:
		return with.auditing
	case steps && transacts:
		return struct {
			stepping
			transactions
		}{with.stepping, tx}
	case steps:
		return with.stepping
	case lists && transacts:
		return struct {
			listing
			transactions
		}{with.listing, tx}
	case lists:
		return with.listing
	case seizes && transacts:
		return struct {
			seizing
			transactions
		}{with.seizing, tx}
	case seizes:
		return with.seizing
	case transacts:
		return struct {
			*Store
			transactions
		}{s, tx}
	}
	return s
}
