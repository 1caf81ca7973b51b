package broken

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	lease    = 2 * time.Second
	maxBody  = 1 << 20 // bytes of a request
	fileName = "journal.jsonl"
)

// A Layer makes each keyed request take effect once, but for its bug. The account in X-Account is who asks; requests
// without one are one account's. It is an [http.Handler].
type Layer struct {
	bug     string
	next    http.Handler
	journal *journal

	mu      sync.Mutex
	records map[string]*record // by identity
	done    []string           // the identities of finished operations, for the bug evict
	bodies  map[string]twin    // by account and fingerprint, for the bug body-as-key
}

// New returns a layer before a handler, with the bug of this name or [None]. Its records are in a file in dir, where
// they are found again after a crash. It is closed with Close.
func New(bug, dir string, next http.Handler) (*Layer, error) {
	if _, err := Find(bug); err != nil {
		return nil, err
	}
	j, records, err := openJournal(filepath.Join(dir, fileName))
	if err != nil {
		return nil, err
	}
	l := &Layer{bug: bug, next: next, journal: j, records: records, bodies: map[string]twin{}}
	oldestFirst := func(a, b string) int { return records[a].At.Compare(records[b].At) }
	for _, id := range slices.SortedFunc(maps.Keys(records), oldestFirst) {
		l.recovered(id, records[id])
	}
	return l, nil
}

// recovered prepares a record that was found in the journal. What ran when the process died keeps its key for a lease,
// as its handler's work may go on elsewhere; then its outcome is unknown.
func (l *Layer) recovered(id string, rec *record) {
	if rec.State == done {
		l.remember(id)
	}
	if rec.State != running {
		return
	}
	rec.crashed, rec.lease = true, time.Now().Add(lease)
	if l.bug == "free-on-restart" {
		rec.State = free
	}
	if l.bug == "stuck" {
		rec.lease = time.Now().Add(never)
	}
}

const never = 100 * 365 * 24 * time.Hour

// Close closes the journal. Requests that still run are held when the folder is opened again.
func (l *Layer) Close() error { return l.journal.close() }

// ServeHTTP lets requests pass that only read, and makes the others take effect once; of those but POST and PATCH only
// what carries a key.
func (l *Layer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lines := r.Header.Values("Idempotency-Key")
	switch r.Method {
	case http.MethodPost, http.MethodPatch:
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		l.next.ServeHTTP(w, r)
		return
	default:
		if len(lines) == 0 {
			l.next.ServeHTTP(w, r)
			return
		}
	}
	key, err := parseKey(lines)
	if l.bug == "malformed-as-none" && errors.Is(err, errSyntax) {
		l.next.ServeHTTP(w, r)
		return
	}
	switch {
	case errors.Is(err, errMissing):
		l.refuse(w, keyMissing)
		return
	case err != nil:
		l.refuse(w, keyInvalid.because(err))
		return
	case len(r.Header.Values("X-Account")) > 1:
		l.refuse(w, scopeInvalid)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		l.refuse(w, bodyTooLarge)
		return
	case err != nil:
		l.refuse(w, unreadable)
		return
	}
	w.Header().Set("Idempotency-Key", lines[0])
	w.Header().Set("Cache-Control", "no-store")
	account, print := r.Header.Get("X-Account"), l.fingerprint(r, body)
	c, first, no := l.claim(r.Context(), l.identity(account, key, print), print)
	switch {
	case no != nil:
		l.refuse(w, *no)
	case first != nil:
		l.replay(w, first)
	default:
		l.answer(w, r, c, body)
	}
}

// answer runs an operation and answers with what came of it.
func (l *Layer) answer(w http.ResponseWriter, r *http.Request, c *claim, body []byte) {
	a, owned, err := l.run(r, c, body)
	switch {
	case err != nil:
		l.refuse(w, outcomePending)
	case !owned:
		l.overtaken(w, c)
	case a == nil:
		l.refuse(w, outcomeUnknown)
	default:
		l.send(w, r, c, a)
	}
}

// overtaken answers the client of an owner whose run was taken over: its own answer is not the operation's.
func (l *Layer) overtaken(w http.ResponseWriter, c *claim) {
	l.mu.Lock()
	rec := *l.records[c.id]
	l.mu.Unlock()
	if rec.State == done {
		l.replay(w, rec.Answer)
		return
	}
	l.refuse(w, inProgress(time.Second))
}
