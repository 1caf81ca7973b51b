package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel/examples/shop/processor"
)

// A scene is one thing that happens to shops.
type scene struct {
	title, why string
	play       func(context.Context, *act)
}

// An act is a scene that is played: it tells what happens, and remembers what it has found.
type act struct {
	*stage
	number int
	title  string
	card   string // of this act alone, so that its entries are found in the card processor's ledger
	ledger string // what that says at the end
	wrong  bool
}

func (s *stage) play(ctx context.Context, number int, sc *scene) *act {
	a := &act{stage: s, number: number, title: sc.title, card: fmt.Sprintf("tok_%s_%d", s.run, number)}
	s.printf("\n%s\n   %s\n\n", s.bold(fmt.Sprintf("%d  %s", number, sc.title)), s.dim(sc.why))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sc.play(ctx, a)
	s.acts = append(s.acts, a)
	return a
}

// check tells what is claimed, and whether it is so.
func (a *act) check(ok bool, format string, args ...any) {
	a.printf("   %s %s\n", a.mark(ok), fmt.Sprintf(format, args...))
	a.wrong = a.wrong || !ok
}

// did checks that something could be done.
func (a *act) did(err error) bool {
	if err != nil {
		a.check(false, "%v", err)
	}
	return err == nil
}

func (a *act) note(format string, args ...any) { a.printf("     "+format+"\n", args...) }

// key returns a key of this act.
func (a *act) key(name string) string { return name + "-" + a.run }

// payment is a payment with the act's card.
func (a *act) payment(amount int64) request {
	return request{path: "/payments/process", user: "alice", body: map[string]any{"amount": amount, "currency": "EUR", "card": a.card}}
}

// sent tells what is sent.
func (a *act) sent(r request, times string) {
	body, _ := json.Marshal(r.body) //nolint:errcheck // a map of texts and numbers
	key := ""
	if r.key != "" {
		key = `   Idempotency-Key: "` + r.key + `"`
	}
	a.printf("   → %sPOST /api/v1%s%s\n", times, r.path, key)
	if r.body != nil {
		a.printf("     %s\n", a.dim(string(body)))
	}
}

// got tells what was answered.
func (a *act) got(r reply) {
	if r.err != nil {
		a.printf("   ← %s\n", "no answer: "+short(r.err))
		return
	}
	a.printf("   ← %s\n", r)
}

// Entries of the ledger that a scene is judged by.
var moves = map[processor.Kind]string{processor.Charge: "charge", processor.Capture: "charge", processor.Refund: "refund"}

// judge ends a scene with what the card processor's ledger says about its card.
func (a *act) judge(ctx context.Context, want string) {
	entries, err := a.entries(ctx)
	if !a.did(err) {
		return
	}
	count, sum, of := map[string]int{}, map[string]int64{}, map[string]bool{}
	for _, e := range entries {
		if what := moves[e.Kind]; what != "" && (e.Card == a.card || of[e.Of]) {
			count[what]++
			sum[what] += e.Amount
		}
		if e.Card == a.card || of[e.Of] {
			of[e.ID] = true
		}
	}
	var said []string
	for _, what := range []string{"charge", "refund"} {
		if count[what] > 0 {
			said = append(said, plural(count[what], what)+", "+money(sum[what], "EUR"))
		}
	}
	if said == nil {
		said = []string{"no charge"}
	}
	a.ledger = strings.Join(said, "; ")
	a.check(a.ledger == want, "the card processor's ledger: %s", a.ledger)
}

// A request is what a user asks of the shop. The method is POST if there is a key, else GET, unless it says otherwise.
type request struct {
	method, path, key, user string
	body                    any
	header                  http.Header
}

// A reply is what a client sees.
type reply struct {
	status   int
	header   http.Header
	body     []byte
	attempts int
	err      error
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// code is what a refusal says for programs.
func (r reply) code() string {
	var p struct{ Code string }
	json.Unmarshal(r.body, &p) //nolint:errcheck // then it has none
	return p.Code
}

func (r reply) String() string {
	text := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
	for _, name := range []string{"Retry-After", "Idempotent-Replayed"} {
		if v := r.header.Get(name); v != "" {
			text += "   " + name + ": " + v
		}
	}
	if c := r.code(); c != "" {
		text += "   " + c
	}
	return text
}

// short is the last part of an error: what has happened, without the address.
func short(err error) string {
	text := err.Error()
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	return text
}
