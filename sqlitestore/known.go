package sqlitestore

import (
	"github.com/semelhq/semel/driver"
)

// The most records that are known, and the longest sealed request of one.
const (
	knownRecords = 4096
	knownSealed  = 4096
)

// known are running records as this process has written them, most of which it will write next: their renewals and
// settles then need not read them. What is known may be out of date, since other processes write too, or may never have
// been committed; whoever writes by it compares. It belongs to the leader of the line.
type known map[driver.ID]row

func (k known) of(id driver.ID) *row {
	r, ok := k[id]
	if !ok {
		return nil
	}
	return &r
}

func (k known) note(id driver.ID, r *row) {
	if r.State != driver.Running || len(r.Sealed) > knownSealed {
		delete(k, id)
		return
	}
	if _, ok := k[id]; !ok && len(k) >= knownRecords {
		for other := range k {
			delete(k, other)
			break
		}
	}
	k[id] = *r
}
