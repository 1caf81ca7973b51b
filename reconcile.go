package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/engine"
)

// An Inquiry asks what became of an operation.
type Inquiry struct {
	ID driver.ID
	// Fence is above the fence of every run so far. To answer [FoundNever] is to promise: if the operation still comes,
	// with a fence up to this one, it will be refused.
	Fence       uint64
	Attempt     int // runs started
	Operation   string
	Correlation string
	Started     time.Time // of the last run, on the store's clock
}

// A Finding answers an [Inquiry]. The zero value finds nothing: the operation stays unknown.
type Finding struct {
	Found Found
	// Answer is given with FoundDone, as it would have been sent: status, header, trailer and body, with no Codec. For a
	// result of [Do] the status is 0 and Body is the result's JSON. The parts that must not be stored are left out; if the
	// body is above Policy.MaxResponseBody, the whole answer is. It must not be changed any more. Nil if the answer is not
	// known.
	Answer *driver.Response
	Reason string // for operators
}

// Found says what an inquiry has found out.
type Found uint8

const (
	// FoundNothing means that the outcome is not known yet.
	FoundNothing Found = iota
	// FoundDone means that the operation took effect.
	FoundDone
	// FoundNever means that the operation did not take effect, and never will under a fence up to that of the inquiry.
	FoundNever
)

// Reconcile settles an operation that reads as unknown to this guard, by asking what became of it. It changes no other
// operation. The store must be a [driver.Seizer].
//
// It raises the fence before it asks: from then on the owner of the lost run can change nothing, and the finding stays
// true. An operation that was done ends done, with the answer that was found. One that never happened becomes free, and
// its next request runs. If nothing is found, or ask fails, or ctx ends it, the operation stays unknown and can be
// asked about again. If several callers decide at once, operators included, one wins and the others change nothing.
//
// It returns what the operation reads as now. As long as this is not known, it returns ReadsUnknown. With it comes the
// error that kept the operation from being decided, or from being audited if the store is a [driver.Auditor]. A settle
// whose reply is lost is repeated until it is acknowledged or ctx ends.
func (g *Guard) Reconcile(ctx context.Context, id driver.ID, ask func(context.Context, Inquiry) (Finding, error)) (driver.Reading, error) {
	if _, ok := g.engine.Store().(driver.Seizer); !ok {
		return driver.ReadsUnknown, fmt.Errorf("semel: reconcile: the store, a %T, can't be seized: %w", g.engine.Store(), errors.ErrUnsupported)
	}
	reads, err := g.route.Reconcile(ctx, id, func(ctx context.Context, rec *driver.Record) (engine.Finding, error) {
		f, err := ask(ctx, Inquiry{
			ID: id, Fence: rec.Fence, Attempt: int(rec.Attempt), Operation: rec.Operation,
			Correlation: rec.Correlation, Started: rec.Started.Time(),
		})
		found := engine.Finding{Found: f.Found == FoundDone, Never: f.Found == FoundNever, Reason: f.Reason}
		if err == nil && found.Found {
			found.Answer, err = g.storedAnswer(ctx, id, rec, f.Answer)
		}
		return found, err
	})
	if err != nil {
		err = fmt.Errorf("semel: reconcile %s: %w", id, err)
	}
	return reads, err
}

// storedAnswer returns the stored form of an answer that was found, or nil if the answer can't be replayed.
func (g *Guard) storedAnswer(ctx context.Context, id driver.ID, rec *driver.Record, a *driver.Response) (*driver.Response, error) {
	switch {
	case a == nil:
		return nil, nil
	case a.Codec != "":
		return nil, fmt.Errorf("the answer that was found is encoded in %q, want it as it was sent", a.Codec)
	case a.Status != 0 && (a.Status < 200 || a.Status > 999):
		return nil, fmt.Errorf("the answer that was found has status %d, want a final one", a.Status)
	}
	body := a.Body
	if a.Status == 0 {
		var err error
		if body, err = storedResult(json.RawMessage(body), nil); err != nil {
			return nil, fmt.Errorf("the result that was found: %w", err)
		}
	} else if !answer.BodyAllowed(a.Status) {
		body = nil
	}
	if int64(len(body)) > g.policy.MaxResponseBody {
		about := engine.Ask{ID: id, Operation: rec.Operation, Correlation: rec.Correlation}
		g.engine.Tell(ctx, &about, rec, event.NotReplayable, answer.ErrTooLarge)
		return nil, nil
	}
	x := exchange{request: request{g: g}}
	named := append(answer.FieldNames(a.Header["Connection"]), g.policy.KeyHeaders...)
	threshold := g.policy.CompressAbove
	if a.Header.Get("Content-Encoding") != "" {
		threshold = -1
	}
	stored := &driver.Response{Status: a.Status, Header: x.storedFields(a.Header, named), Trailer: x.storedFields(a.Trailer, named)}
	stored.Body, stored.Codec = g.codecs.Pack(body, threshold)
	return stored, nil
}
