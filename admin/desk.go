package admin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/keyring"
)

// A Desk is an operator's view of one store. It is safe for concurrent use.
type Desk struct {
	store   driver.Store
	keyring *keyring.Ring
	seizer  driver.Seizer
	lister  driver.Lister
	auditor driver.Auditor
}

// Options are a desk's settings. The zero value is valid.
type Options struct {
	// Encryption is the keyring of the guards on the store. With it, Show and List return in the clear the answers and
	// names whose key it has, and Complete encrypts the answer. Defaults to none.
	Encryption *keyring.Ring
}

// New returns a desk. The store must also be a [driver.Seizer], a [driver.Lister] and a [driver.Auditor]. The error
// names those that it is not.
func New(store driver.Store, o Options) (*Desk, error) {
	if store == nil {
		return nil, errors.New("admin: store is nil")
	}
	d := &Desk{store: store, keyring: o.Encryption}
	var lacks []string
	has := func(ok bool, what string) {
		if !ok {
			lacks = append(lacks, what)
		}
	}
	var ok bool
	d.seizer, ok = store.(driver.Seizer)
	has(ok, "decisions (driver.Seizer)")
	d.lister, ok = store.(driver.Lister)
	has(ok, "listing (driver.Lister)")
	d.auditor, ok = store.(driver.Auditor)
	has(ok, "an audit trail (driver.Auditor)")
	if len(lacks) > 0 {
		return nil, fmt.Errorf("admin: the store, a %T, does not support %s", store, strings.Join(lacks, ", "))
	}
	return d, nil
}

// Show returns an operation's record and the decisions about it, the newest first. If there is no operation, the
// record's State is Absent; earlier decisions about it are returned all the same.
func (d *Desk) Show(ctx context.Context, id driver.ID) (driver.Record, []driver.AuditEntry, error) {
	rec, err := d.load(ctx, id)
	if err != nil {
		return driver.Record{}, nil, err
	}
	var trail []driver.AuditEntry
	err = d.auditor.AuditTrail(ctx, &id, 0, func(e driver.AuditEntry) bool {
		named := driver.Record{Operation: e.Operation}
		d.openNames(id, &named)
		e.Operation = named.Operation
		trail = append(trail, e)
		return true
	})
	if err != nil {
		return driver.Record{}, nil, fmt.Errorf("read the audit trail of %s: %w", id, err)
	}
	d.open(id, &rec)
	return rec, trail, nil
}

// open decrypts the record's answer and names. If one can't be read, it stays as it is.
func (d *Desk) open(id driver.ID, rec *driver.Record) {
	d.openNames(id, rec)
	d.openAnswer(id, rec)
}

func (d *Desk) openAnswer(id driver.ID, rec *driver.Record) {
	if answer, err := d.keyring.Open(id, rec); err == nil {
		rec.Response = answer
	}
}

func (d *Desk) openNames(id driver.ID, rec *driver.Record) {
	d.keyring.OpenNames(id, rec) //nolint:errcheck // the stored form shows that a name can't be read
}

// List calls yield for the operations that match q, as [driver.Lister] does, but leaves out the store's own records.
// With a keyring, names are compared in the clear, which the store can't do. So for q.Operation and q.Correlation, List
// goes through all records that match the other conditions, and decrypts the names of each.
func (d *Desk) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	limit, given := q.Limit, 0
	q.Limit = 0 // the store's own records don't count
	named := driver.Query{Operation: q.Operation, Correlation: q.Correlation}
	if d.keyring != nil {
		q.Operation, q.Correlation = "", ""
	}
	err := d.lister.List(ctx, q, func(id driver.ID, rec driver.Record) bool {
		if id.Reserved() {
			return true
		}
		if d.openNames(id, &rec); !named.Matches(id, &rec) {
			return true
		}
		given++
		d.openAnswer(id, &rec)
		return yield(id, rec) && given != limit
	})
	if err != nil {
		return fmt.Errorf("list operations: %w", err)
	}
	return nil
}

func (d *Desk) load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	if id.Reserved() {
		return rec, nil
	}
	err = untilAcknowledged(ctx, func() error {
		rec, err = d.store.Load(ctx, id)
		return err
	})
	if err != nil {
		return driver.Record{}, fmt.Errorf("load operation %s: %w", id, err)
	}
	return rec, nil
}

// untilAcknowledged repeats a verb whose reply may have been lost, a few times.
func untilAcknowledged(ctx context.Context, verb func() error) error {
	const tries, pause = 3, 100 * time.Millisecond
	for try := 1; ; try++ {
		err := verb()
		if err == nil || try == tries || errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrUnreadable) {
			return err
		}
		t := time.NewTimer(time.Duration(try) * (pause/2 + rand.N(pause/2)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}
