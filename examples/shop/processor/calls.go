package processor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func (p *Processor) routes() {
	p.mux = http.NewServeMux()
	p.mux.HandleFunc("POST /authorizations", call(p, p.authorize))
	p.mux.HandleFunc("POST /authorizations/{id}/capture", call(p, p.capture))
	p.mux.HandleFunc("POST /authorizations/{id}/void", call(p, p.void))
	p.mux.HandleFunc("POST /charges", call(p, p.charge))
	p.mux.HandleFunc("POST /refunds", call(p, p.refund))
	p.mux.HandleFunc("POST /closures", p.closeKey)
	p.mux.HandleFunc("GET /lookup", p.lookup)
	p.mux.HandleFunc("GET /charges", p.lookup)
	p.mux.HandleFunc("GET /ledger", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, p.Ledger()) })
	p.mux.HandleFunc("GET /faults", p.getFaults)
	p.mux.HandleFunc("PUT /faults", p.putFaults)
}

// A Purchase is the body of POST /authorizations and POST /charges.
type Purchase struct {
	Amount    int64  `json:"amount"` // in minor units
	Currency  string `json:"currency"`
	Card      string `json:"card"` // a token, such as tok_visa
	Reference string `json:"reference,omitempty"`
}

// A Part is the body of a capture. No amount means all of it.
type Part struct {
	Amount    int64  `json:"amount,omitempty"`
	Reference string `json:"reference,omitempty"`
}

// A Return is the body of POST /refunds. Charge is the id of a charge or of a capture.
type Return struct {
	Charge    string `json:"charge"`
	Amount    int64  `json:"amount"`
	Reference string `json:"reference,omitempty"`
}

// A Receipt answers a call that had its effect.
type Receipt struct {
	ID        string `json:"id"`
	Kind      Kind   `json:"kind"`
	Of        string `json:"of,omitempty"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Reference string `json:"reference,omitempty"`
}

func (p *Processor) authorize(_ *http.Request, b Purchase, declined bool) (Entry, *refusal) {
	return purchase(Authorization, b, declined)
}

func (p *Processor) charge(_ *http.Request, b Purchase, declined bool) (Entry, *refusal) {
	return purchase(Charge, b, declined)
}

func purchase(kind Kind, b Purchase, declined bool) (Entry, *refusal) {
	if bad := checkAmount(b.Amount); bad != nil {
		return Entry{}, bad
	}
	if len(b.Currency) != 3 || strings.Trim(b.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return Entry{}, invalid("currency", "%q is not three capital letters, as ISO 4217 has it", b.Currency)
	}
	if !strings.HasPrefix(b.Card, "tok_") {
		return Entry{}, invalid("card", "%q is not a token such as tok_visa", b.Card)
	}
	if declined || b.Card == Declined {
		kind = Decline
	}
	return Entry{Kind: kind, Amount: b.Amount, Currency: b.Currency, Card: b.Card, Reference: b.Reference}, nil
}

func (p *Processor) capture(r *http.Request, b Part, _ bool) (Entry, *refusal) {
	a, bad := p.authorization(r)
	switch {
	case bad != nil:
		return Entry{}, bad
	case a.voided:
		return Entry{}, conflict("voided", "the authorization is voided")
	case a.charge != "":
		return Entry{}, conflict("captured", "the authorization is captured already")
	}
	if b.Amount == 0 {
		b.Amount = a.entry.Amount
	}
	if bad := checkAmount(b.Amount); bad != nil {
		return Entry{}, bad
	}
	if b.Amount > a.entry.Amount {
		return Entry{}, tooMuch("authorized", b.Amount, a.entry.Amount)
	}
	return entryOf(Capture, a, b.Amount, b.Reference), nil
}

func (p *Processor) void(r *http.Request, b Part, _ bool) (Entry, *refusal) {
	a, bad := p.authorization(r)
	switch {
	case bad != nil:
		return Entry{}, bad
	case b.Amount != 0:
		return Entry{}, invalid("amount", "an authorization is voided as a whole")
	case a.voided:
		return Entry{}, conflict("voided", "the authorization is voided already")
	case a.charge != "":
		return Entry{}, conflict("captured", "the authorization is captured: refund it")
	}
	return entryOf(Void, a, a.entry.Amount, b.Reference), nil
}

func (p *Processor) refund(_ *http.Request, b Return, _ bool) (Entry, *refusal) {
	c := p.byID[b.Charge]
	if bad := checkAmount(b.Amount); bad != nil {
		return Entry{}, bad
	}
	switch {
	case c == nil || c.charge != b.Charge:
		return Entry{}, &refusal{http.StatusNotFound, "not_found", "charge", "charge: there is none of that id"}
	case b.Amount > c.captured-c.refunded:
		return Entry{}, tooMuch("left to refund", b.Amount, c.captured-c.refunded)
	}
	e := entryOf(Refund, c, b.Amount, b.Reference)
	e.Of = b.Charge
	return e, nil
}

func (p *Processor) authorization(r *http.Request) (*payment, *refusal) {
	a := p.byID[r.PathValue("id")]
	if a == nil || a.entry.Kind != Authorization || a.entry.ID != r.PathValue("id") {
		return nil, &refusal{http.StatusNotFound, "not_found", "", "there is no such authorization"}
	}
	return a, nil
}

func entryOf(kind Kind, of *payment, amount int64, reference string) Entry {
	if reference == "" {
		reference = of.entry.Reference
	}
	return Entry{Kind: kind, Of: of.entry.ID, Amount: amount, Currency: of.entry.Currency, Card: of.entry.Card, Reference: reference}
}

const (
	maxAmount    = 1_000_000_000_000
	maxReference = 200
)

func checkAmount(amount int64) *refusal {
	if amount < 1 || amount > maxAmount {
		return invalid("amount", "%d is not from 1 to %d minor units", amount, int64(maxAmount))
	}
	return nil
}

// call serves a call that may move money. decide says what it does, with p.mu held, and changes nothing. Its entry, the
// key and the answer are one line of the ledger, which is durable before a byte of the answer leaves.
func call[B any](p *Processor, decide func(r *http.Request, body B, declined bool) (Entry, *refusal)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body B
		raw, bad := readJSON(w, r, &body)
		if bad != nil {
			bad.write(w)
			return
		}
		key, fence, bad := keyOf(r)
		if bad != nil {
			bad.write(w)
			return
		}
		fate := p.faults.next()
		time.Sleep(fate.delay)
		if fate.failBefore {
			failed().write(w)
			return
		}
		sum := sha256.Sum256([]byte(r.URL.Path + "\n" + string(raw)))
		e, replayed, bad := p.once(key, fence, hex.EncodeToString(sum[:]), func() (Entry, *refusal) { return decide(r, body, fate.decline) })
		switch {
		case fate.loseAnswer:
			panic(http.ErrAbortHandler)
		case fate.failAfter:
			failed().write(w)
			return
		case bad != nil:
			bad.write(w)
			return
		}
		if replayed {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		writeJSON(w, e.Status, e.Answer)
	}
}

// once records what decide decides, unless an entry of the key is there.
func (p *Processor) once(key string, fence uint64, request string, decide func() (Entry, *refusal)) (e Entry, replayed bool, bad *refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key != "" && p.faults.get().Dedup {
		if at, known := p.byKey[key]; known {
			if e = p.entries[at]; e.Request != request {
				return e, false, &refusal{http.StatusUnprocessableEntity, "key_reused", "", "the key was used for another request"}
			}
			return e, true, nil
		}
		if upTo, closed := p.closed[key]; closed && fence <= upTo {
			return e, false, conflict("key_closed", "requests under this key are refused up to the fence %d", upTo)
		}
	}
	if e, bad = decide(); bad != nil {
		return e, false, bad
	}
	if len(e.Reference) > maxReference {
		return e, false, invalid("reference", "it has %d bytes, the limit is %d", len(e.Reference), maxReference)
	}
	e.Key, e.Request = key, request
	e.Seq, e.At = len(p.entries)+1, time.Now().UTC()
	e.ID = fmt.Sprintf("%s_%d", e.Kind, e.Seq)
	e.Status = http.StatusCreated
	var answer any = Receipt{ID: e.ID, Kind: e.Kind, Of: e.Of, Amount: e.Amount, Currency: e.Currency, Reference: e.Reference}
	if e.Kind == Decline {
		declined := &refusal{http.StatusPaymentRequired, "declined", "card", "card: the bank declines it"}
		e.Status, answer = declined.status, declined.body()
	}
	e.Answer, _ = json.Marshal(answer)
	if err := p.record(e); err != nil {
		return e, false, &refusal{http.StatusInternalServerError, "internal", "", err.Error()}
	}
	return e, false, nil
}

// lookup tells what became of the request under a key: its entry, or 404.
func (p *Processor) lookup(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("key")
	if key == "" {
		invalid("key", "say which one: ?key=K").write(w)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.byKey[key]
	if !known {
		(&refusal{http.StatusNotFound, "not_found", "key", "key: no request under it had an effect"}).write(w)
		return
	}
	writeJSON(w, http.StatusOK, p.entries[at])
}

// closeKey makes sure that what lookup did not find never comes: requests under the key are refused from then on, up to
// the fence, or for good without one. If a request has come already, nothing is closed, and its entry is the answer.
// 204 means closed.
func (p *Processor) closeKey(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Key   string  `json:"key"`
		Fence *uint64 `json:"fence"`
	}
	_, bad := readJSON(w, r, &body)
	if bad == nil && body.Key == "" {
		bad = invalid("key", "it is empty")
	}
	if bad != nil {
		bad.write(w)
		return
	}
	fence := ^uint64(0)
	if body.Fence != nil {
		fence = *body.Fence
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := p.byKey[body.Key]; known {
		writeJSON(w, http.StatusOK, p.entries[at])
		return
	}
	if upTo, closed := p.closed[body.Key]; !closed || upTo < fence {
		seq := len(p.entries) + 1
		e := Entry{Seq: seq, At: time.Now().UTC(), Kind: Closure, ID: fmt.Sprintf("%s_%d", Closure, seq), Key: body.Key, Fence: fence}
		if err := p.record(e); err != nil {
			(&refusal{http.StatusInternalServerError, "internal", "", err.Error()}).write(w)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// keyOf returns the request's key, bare or as a quoted string, and the fence of the run that sends it.
func keyOf(r *http.Request) (key string, fence uint64, bad *refusal) {
	key = r.Header.Get("Idempotency-Key")
	if quoted, is := strings.CutPrefix(key, `"`); is {
		key = strings.TrimSuffix(quoted, `"`)
	}
	if len(key) > 255 {
		return "", 0, invalid("Idempotency-Key", "it has %d bytes, the limit is 255", len(key))
	}
	if f := r.Header.Get("Idempotency-Fence"); f != "" {
		var err error
		if fence, err = strconv.ParseUint(f, 10, 64); err != nil {
			return "", 0, invalid("Idempotency-Fence", "%q is not a number", f)
		}
	}
	return key, fence, nil
}

// readJSON reads the body, which may be empty where no field is needed.
func readJSON(w http.ResponseWriter, r *http.Request, into any) (raw []byte, bad *refusal) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "unreadable", "", "read the body: " + err.Error()}
	}
	if len(raw) == 0 {
		return raw, nil
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	err = d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("there is more after the object")
	}
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed) && typed.Field != "":
		return raw, invalid(typed.Field, "%s does not fit, want %s", typed.Value, typed.Type)
	case err != nil:
		return raw, &refusal{http.StatusBadRequest, "invalid", "", "read the body as JSON: " + err.Error()}
	}
	return raw, nil
}

// A refusal is an answer without an effect, or that hides it.
type refusal struct {
	status  int
	code    string
	field   string
	message string
}

func invalid(field, format string, a ...any) *refusal {
	return &refusal{http.StatusBadRequest, "invalid", field, field + ": " + fmt.Sprintf(format, a...)}
}

func conflict(code, format string, a ...any) *refusal {
	return &refusal{http.StatusConflict, code, "", fmt.Sprintf(format, a...)}
}

func tooMuch(of string, amount, limit int64) *refusal {
	return &refusal{http.StatusConflict, "too_much", "amount", fmt.Sprintf("amount: %d is more than the %d that are %s", amount, limit, of)}
}

func failed() *refusal {
	return &refusal{http.StatusInternalServerError, "internal", "", "something went wrong"}
}

func (r *refusal) body() any {
	b := map[string]string{"code": r.code, "message": r.message}
	if r.field != "" {
		b["field"] = r.field
	}
	return map[string]any{"error": b}
}

func (r *refusal) write(w http.ResponseWriter) { writeJSON(w, r.status, r.body()) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck // the client has gone
}
