package driver

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
)

// Query selects records for a [Lister]. Zero fields select all.
type Query struct {
	Scope       *ScopeID // only records of this kind and scope
	Prefix      string   // only records whose public id begins with it
	Operation   string   // only records of this operation, such as "POST /payments", as it is stored: no sealed name
	Correlation string   // only records whose last run was started by the request with this correlation id, as it is stored
	Reading     Reading  // only records with this reading; zero (ReadsAbsent) selects all
	Sealed      bool     // only records with a sealed request
	Limit       int      // at most this many records; 0 means no limit
	// Scanned asks a [Scanner] for no more than its scan has come by. Whoever sets it sees to it that somebody calls Scan.
	Scanned bool
}

// Range returns the first and the last ID that Scope and Prefix allow; some is false if they allow none. A store whose
// records are ordered by ID looks only at the IDs between them.
func (q *Query) Range() (first, last ID, some bool) {
	last = ID(bytes.Repeat([]byte{0xff}, len(last)))
	if q.Scope != nil {
		copy(first[:], q.Scope[:])
		copy(last[:], q.Scope[:])
	}
	if q.Prefix == "" {
		return first, last, true
	}
	left := base64.RawURLEncoding.EncodedLen(len(ID{})) - len(q.Prefix)
	if left < 0 {
		return ID{}, ID{}, false
	}
	from, err := ParseID(q.Prefix + strings.Repeat("A", left)) // the digit 0
	if err != nil {
		return ID{}, ID{}, false
	}
	to, err := ParseID(q.Prefix + strings.Repeat("_", left)) // the digit 63
	if err != nil {
		return ID{}, ID{}, false
	}
	less := func(a, b ID) int { return bytes.Compare(a[:], b[:]) }
	first, last = slices.MaxFunc([]ID{first, from}, less), slices.MinFunc([]ID{last, to}, less)
	return first, last, less(first, last) <= 0
}

// Matches reports whether q selects a record, as it reads at rec.Now. It ignores Limit, which the caller has to count.
func (q *Query) Matches(id ID, rec *Record) bool {
	return rec.State != Absent &&
		(q.Scope == nil || *q.Scope == id.Scope()) &&
		(q.Prefix == "" || strings.HasPrefix(id.String(), q.Prefix)) &&
		(q.Operation == "" || q.Operation == rec.Operation) &&
		(q.Correlation == "" || q.Correlation == rec.Correlation) &&
		(q.Reading == ReadsAbsent || q.Reading == rec.Reads(rec.OnLost)) &&
		(!q.Sealed || len(rec.Sealed) > 0)
}
