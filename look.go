package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
)

// CallStatus is what is known of an operation of [Do].
type CallStatus struct {
	ID  string // the operation's public id, as [driver.ID.String] writes it
	Key Key    // Value is empty if it is not stored: only Policy.Complete stores it
	// Reading is what the record means: absent, running, done, unknown and so on. Owed says that a completer goes on
	// with an operation that no run owns.
	Reading  driver.Reading
	Owed     bool
	Attempts int
	// Created is when the operation was first claimed, Started when its last run was, Ended when that run was settled.
	// They are times of the store's clock, zero if not yet.
	Created, Started, Ended time.Time
	Error                   string   // of the last run, if it was released or its outcome is unknown
	Steps                   []string // names of the steps that are saved, in order

	result *storedJSON
}

// ErrNoResult means that an operation has no stored result: it has not ended, or its result could not be stored.
var ErrNoResult = errors.New("no result is stored")

// Result decodes the stored result into *to. It returns the stored error as a [*ReplayedError], and [ErrNoResult] if
// there is neither.
func (s *CallStatus) Result(to any) error {
	switch {
	case s.result == nil:
		return fmt.Errorf("semel: result of operation %s: %w", s.ID, ErrNoResult)
	case s.result.Error != nil:
		return &ReplayedError{
			Report:  Report{Replayed: true, Attempt: s.Attempts},
			message: s.result.Error.Message, code: s.result.Error.Code,
		}
	}
	if err := json.Unmarshal(s.result.Value, to); err != nil {
		return fmt.Errorf("semel: result of operation %s: decode it: %w", s.ID, err)
	}
	return nil
}

// Look tells what is known of the operation of a key, and runs nothing. Under Policy.PerOperation the key needs its
// Operation. An operation that does not exist reads as absent. An error is one of the store, or a [*Problem] about the
// key.
func (g *Guard) Look(ctx context.Context, key Key) (*CallStatus, error) {
	c := call{request: request{g: g, started: time.Now()}, ctx: ctx}
	if p := c.locate(key); p != nil {
		return nil, p
	}
	rec, err := g.engine.Load(ctx, c.ask.ID)
	if err != nil {
		return nil, fmt.Errorf("semel: look at operation %s: %w", c.ask.ID, err)
	}
	s, err := g.callStatus(ctx, c.ask.ID, &rec)
	if err != nil {
		return nil, fmt.Errorf("semel: look at operation %s: %w", c.ask.ID, err)
	}
	key.Kind = c.ask.kind
	s.Key = key
	return s, nil
}

// LookAll calls yield for the operations of one kind and scope, in no particular order, until yield returns false. It
// needs a store that is a [driver.Lister]. The steps of an operation and its result are not read; [Guard.Look] does.
func (g *Guard) LookAll(ctx context.Context, kind Kind, scope string, yield func(*CallStatus) bool) error {
	if _, ok := g.engine.Store().(driver.Lister); !ok {
		return fmt.Errorf("semel: look at operations: the store, a %T, can't list them: %w", g.engine.Store(), errors.ErrUnsupported)
	}
	of := g.identity.Scope(string(kind), scope)
	err := g.engine.List(ctx, driver.Query{Scope: &of}, func(id driver.ID, rec driver.Record) bool {
		if g.engine.OpenNames(ctx, id, &rec) != nil {
			rec.Operation, rec.Correlation = "", ""
		}
		s := newCallStatus(id, &rec)
		s.Key = Key{Kind: kind, Scope: scope, Operation: rec.Operation, Value: rec.Correlation}
		return yield(s)
	})
	if err != nil {
		return fmt.Errorf("semel: look at operations: %w", err)
	}
	return nil
}

func newCallStatus(id driver.ID, rec *driver.Record) *CallStatus {
	s := &CallStatus{
		ID: id.String(), Reading: rec.Reads(rec.OnLost), Attempts: int(rec.Attempt), Error: rec.Error,
		Created: rec.Created.Time(), Started: rec.Started.Time(), Ended: rec.Settled.Time(),
	}
	s.Owed = s.Reading == driver.ReadsFree && goesOn(rec)
	return s
}

func (g *Guard) callStatus(ctx context.Context, id driver.ID, rec *driver.Record) (*CallStatus, error) {
	s := newCallStatus(id, rec)
	if _, keeps := g.engine.Store().(driver.StepStore); keeps && rec.Steps {
		saved, err := g.engine.Steps(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read its steps: %w", err)
		}
		s.Steps = slices.Sorted(maps.Keys(saved))
	}
	if s.Reading == driver.ReadsDone && rec.Response != nil {
		var err error
		if s.result, err = g.openResult(ctx, id, rec); err != nil {
			return nil, fmt.Errorf("read its result: %w", err)
		}
	}
	return s, nil
}

// openResult reads the stored result of a record that is done.
func (g *Guard) openResult(ctx context.Context, id driver.ID, rec *driver.Record) (*storedJSON, error) {
	answer, err := g.engine.OpenAnswer(ctx, id, rec)
	if err != nil {
		return nil, err
	}
	body, err := g.codecs.Unpack(answer, max(g.policy.MaxResponseBody, defaults.MaxResponseBody))
	if err != nil {
		return nil, err
	}
	s := &storedJSON{}
	return s, json.Unmarshal(body, s)
}
