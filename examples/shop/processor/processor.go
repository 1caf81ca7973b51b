// Package processor is a card processor to try a shop against. It is spoken to over HTTP, keeps an append-only ledger, and
// can be told to fail as real ones do: late, before the effect, after it, or with an answer that never arrives. What its
// ledger says was charged is the truth that the shop's tests count.
//
// Like real processors it recognises a repetition by the header Idempotency-Key: the same request is answered as it was
// the first time and marked Idempotent-Replayed, another request under the key is refused with 422. Amounts are
// integers in minor units, with a currency of ISO 4217.
//
// Where to look: calls.go is what can be asked, ledger.go is the file, faults.go are the switches.
package processor

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// Declined is a card that every call declines.
const Declined = "tok_declined"

// Options are the settings of a Processor.
type Options struct {
	// Ledger is the path of the ledger's file. It is made if it does not exist. One process at a time may use it.
	Ledger string
}

// A Processor takes money from cards. Its methods are safe for concurrent use.
type Processor struct {
	mux    *http.ServeMux
	faults faults

	mu      sync.Mutex
	file    ledgerFile
	entries []Entry
	byID    map[string]*payment // by the id of the authorization and of the charge
	byKey   map[string]int      // index in entries of the first entry of a key
	closed  map[string]uint64   // by key: up to which fence requests are refused
}

// A payment is what the ledger says about one authorization or charge.
type payment struct {
	entry    Entry // that made it
	captured int64
	refunded int64
	charge   string // id of what was captured; "" before
	voided   bool
}

// Open returns the processor whose ledger is in a file. A last line that a crash has torn is cut off: its request was
// never answered. The error says what the file has in it otherwise.
func Open(o Options) (*Processor, error) {
	if o.Ledger == "" {
		return nil, errors.New("processor: Options.Ledger is empty: say where the ledger is kept")
	}
	p := &Processor{entries: []Entry{}, byID: map[string]*payment{}, byKey: map[string]int{}, closed: map[string]uint64{}}
	p.faults.set(Faults{Dedup: true})
	err := p.file.open(o.Ledger, func(e Entry) error {
		if e.Seq != len(p.entries)+1 {
			return fmt.Errorf("entry %d has the number %d", len(p.entries)+1, e.Seq)
		}
		p.apply(e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("processor: open the ledger: %w", err)
	}
	p.routes()
	return p, nil
}

// Handler serves the processor's API.
func (p *Processor) Handler() http.Handler { return p.mux }

// Ledger returns a copy of all entries, in order.
func (p *Processor) Ledger() []Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.entries)
}

// Close closes the ledger. Later calls that would change it are answered with 500.
func (p *Processor) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.file.close()
}

// record makes an entry durable, and then true. p.mu is held.
func (p *Processor) record(e Entry) error {
	if err := p.file.append(e); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	p.apply(e)
	return nil
}

// apply brings the state in line with the ledger's next entry.
func (p *Processor) apply(e Entry) {
	if e.Key != "" {
		if e.Kind == Closure {
			p.closed[e.Key] = e.Fence
		} else if _, known := p.byKey[e.Key]; !known {
			p.byKey[e.Key] = len(p.entries)
		}
	}
	p.entries = append(p.entries, e)
	switch e.Kind {
	case Authorization:
		p.byID[e.ID] = &payment{entry: e}
	case Charge:
		p.byID[e.ID] = &payment{entry: e, captured: e.Amount, charge: e.ID}
	case Capture:
		a := p.byID[e.Of]
		a.captured, a.charge = e.Amount, e.ID
		p.byID[e.ID] = a
	case Void:
		p.byID[e.Of].voided = true
	case Refund:
		p.byID[e.Of].refunded += e.Amount
	}
}
