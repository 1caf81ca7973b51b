package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/refusal"
)

// A crash is a call, and the points of it at which a process dies.
type crash struct {
	name    string
	points  []string
	method  string
	prepare func(t *testing.T, s *stage) (path string, body any)
	want    int
	check   func(t *testing.T, s *stage, r *client.Answer)
}

var crashes = []crash{
	{
		name: "charge", points: []string{"payments.process.start", "payments.process.begun", "payments.process.charged", "payments.process.saved", "payments.process.finished"},
		prepare: func(*testing.T, *stage) (string, any) { return "/payments/process", purchase },
		want:    201, check: paymentIs("paid", "charge 4200"),
	},
	{
		name: "declined", points: []string{"payments.process.charged"},
		prepare: func(*testing.T, *stage) (string, any) {
			declined := purchase
			declined.Card = "tok_declined"
			return "/payments/process", declined
		},
		want: 402,
	},
	{
		name: "prepare", points: []string{"payments.prepare.start", "payments.prepare.begun", "payments.prepare.authorized", "payments.prepare.saved", "payments.prepare.finished"},
		prepare: func(*testing.T, *stage) (string, any) { return "/payments/prepare", purchase },
		want:    201, check: paymentIs("prepared", "authorization 4200"),
	},
	{
		name: "capture", points: []string{"payments.process.begun", "payments.process.charged", "payments.process.saved", "payments.process.finished"},
		prepare: func(t *testing.T, s *stage) (string, any) {
			return "/payments/process", shop.ProcessPayment{Payment: s.prepared(t).ID}
		},
		want: 201, check: paymentIs("paid", "authorization 4200, capture 4200"),
	},
	{
		name: "cancel", points: []string{"payments.cancel.start", "payments.cancel.begun", "payments.cancel.voided", "payments.cancel.saved", "payments.cancel.finished"},
		prepare: func(t *testing.T, s *stage) (string, any) {
			return "/payments/cancel", shop.PaymentRef{Payment: s.prepared(t).ID}
		},
		want: 200, check: paymentIs("cancelled", "authorization 4200, void 4200"),
	},
	{
		name: "refund", points: []string{"payments.refund.start", "payments.refund.begun", "payments.refund.refunded", "payments.refund.saved", "payments.refund.finished"},
		prepare: func(t *testing.T, s *stage) (string, any) {
			return "/payments/refund", shop.NewRefund{Payment: s.charge(t).ID, Amount: 700}
		},
		want: 201,
		check: func(t *testing.T, s *stage, r *client.Answer) {
			refund := answer[shop.Refund](t, r)
			if got := s.ledger(t, refund.Payment); refund.Amount != 700 || got != "charge 4200, refund 700" {
				t.Errorf("%s, and the ledger has %q", r.Body, got)
			}
		},
	},
	{
		name: "hold", points: []string{"intents.put.start", "intents.put.begun", "intents.put.authorized", "intents.put.finished"}, method: http.MethodPut,
		prepare: func(*testing.T, *stage) (string, any) { return intent(), purchase },
		want:    200, check: intentIs("created"),
	},
	{
		name: "confirm", points: []string{"intents.confirm.start", "intents.confirm.begun", "intents.confirm.charged", "intents.confirm.saved", "intents.confirm.finished"},
		prepare: func(t *testing.T, s *stage) (string, any) { return s.held(t) + "/confirm", nil },
		want:    200, check: intentIs("confirmed"),
	},
	{
		name: "let go", points: []string{"intents.cancel.begun"},
		prepare: func(t *testing.T, s *stage) (string, any) { return s.held(t) + "/cancel", nil },
		want:    200, check: intentIs("cancelled"),
	},
}

// TestACrashAtAnyPointMovesMoneyOnce: a process dies before or after each effect of each call that moves money. The
// client asks again with the same key, and an instance that lives takes over, or has done so by itself. The books are
// compared by a script of its own. In its short form the test leaves out points on PostgreSQL.
func TestACrashAtAnyPointMovesMoneyOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c host.Config) {
		each := 1
		if c.Database != "" {
			each = proof.Of(3, 1)
		}
		c.Instances, c.Lease, c.NATS = 1, time.Second, cmp.Or(c.NATS, newNATS(t))
		s := newStage(t, c)
		var again []func()
		n := 0
		for _, c := range crashes {
			for _, point := range c.points {
				if n++; n%each != 0 {
					continue
				}
				again = append(again, s.crashes(t, c, point))
				if len(again) == 6 { // the first leases end now
					for _, f := range again {
						f()
					}
					again = nil
				}
			}
		}
		for _, f := range again {
			f()
		}
		s.balance(t)
	})
}

// TestWithAtMostOnceACrashIsSettledByTheProcessorsWord: no run follows the one that died. Its client is told that the
// outcome is unknown until the processor has been asked; then it gets its answer, or may pay.
func TestWithAtMostOnceACrashIsSettledByTheProcessorsWord(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{Instances: 1, Lease: time.Second, AtMostOnce: true, NATS: newNATS(t)})
	keys := map[string]client.Key{}
	points := crashes[0].points
	for _, point := range points {
		p := s.newProcess(t, point)
		keys[point] = client.NewKey()
		if a, err := s.send(t, p.url, keys[point], crash{}, "/payments/process", purchase, 1); err == nil {
			t.Fatalf("the process answers %d %s instead of dying at %s", a.Status, a.Body, point)
		}
		<-p.ended
	}
	for _, point := range points {
		var a *client.Answer
		s.eventually("answered", func() (state string) {
			var err error
			if a, err = s.send(t, s.urls[0], keys[point], crash{}, "/payments/process", purchase, 1); err == nil {
				return "answered"
			}
			if !errors.Is(err, refusal.OutcomeUnknown) && !errors.Is(err, refusal.InProgress) {
				t.Fatalf("%s: %v", point, err)
			}
			return err.Error()
		})
		paymentIs("paid", "charge 4200")(t, s, a)
	}
	s.balance(t)
}

// crashes has a process die in the middle of a call. It returns what makes the call again, and looks at the answer.
func (s *stage) crashes(t *testing.T, c crash, point string) (again func()) {
	path, body := c.prepare(t, s)
	p := s.newProcess(t, point)
	key := client.NewKey()
	if a, err := s.send(t, p.url, key, c, path, body, 1); err == nil {
		t.Fatalf("the process answers %d %s instead of dying at %s", a.Status, a.Body, point)
	}
	<-p.ended
	return func() {
		t.Run(c.name+" "+point, func(t *testing.T) {
			a, err := s.send(t, s.urls[0], key, c, path, body, 30)
			must(t, err)
			if a.Status != c.want && (c.method != http.MethodPut || a.Status != http.StatusCreated) {
				t.Fatalf("%d %s, want %d", a.Status, a.Body, c.want)
			}
			if c.check != nil {
				c.check(t, s, a)
			}
		})
	}
}

// send makes a call as clients do.
func (s *stage) send(t *testing.T, url string, key client.Key, c crash, path string, body any, attempts int) (*client.Answer, error) {
	t.Helper()
	text := []byte{}
	if body != nil {
		var err error
		text, err = json.Marshal(body)
		must(t, err)
	}
	method := cmp.Or(c.method, http.MethodPost)
	r, err := http.NewRequestWithContext(t.Context(), method, url+"/api/v1"+path, bytes.NewReader(text))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	token, err := s.host.Keys.Token("acme", "alice", time.Hour)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	transport, err := client.New(nil, client.Options{MaxAttempts: attempts, Backoff: client.FullJitter(50*time.Millisecond, time.Second), Budget: client.Budget{Off: true}})
	must(t, err)
	return client.Do(context.Background(), &http.Client{Transport: transport}, key, r)
}

// python returns the interpreter's own path: what is called python3 may be a script that looks for it each time.
var python = sync.OnceValues(func() (string, error) {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(path)), err
})

// books compares the shop's books with the ledger, and returns what the script says.
func (s *stage) books(t *testing.T) (string, error) {
	t.Helper()
	interpreter, err := python()
	must(t, err)
	database := cmp.Or(s.config.Database, filepath.Join(s.data, "shop.db"))
	proof.Reads("examples")
	out, err := exec.CommandContext(t.Context(), interpreter, "../books.py", filepath.Join(s.data, "processor.jsonl"), database).CombinedOutput()
	return string(out), err
}

// balance waits until nothing is under way, and compares the books. It does not look often: a look is a process.
func (s *stage) balance(t *testing.T) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(250 * time.Millisecond) {
		out, err := s.books(t)
		if err == nil {
			t.Log(out)
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func (s *stage) prepared(t *testing.T) shop.Payment {
	t.Helper()
	return decode[shop.Payment](t, s.want(t, 201, "/payments/prepare", s.newKey(), purchase))
}

// held makes an intent, and returns its path.
func (s *stage) held(t *testing.T) string {
	t.Helper()
	path := intent()
	if r := s.call(0, "PUT", path, "", purchase, nil); r.Status != http.StatusCreated {
		t.Fatal(r)
	}
	return path
}

func paymentIs(state, ledger string) func(*testing.T, *stage, *client.Answer) {
	return func(t *testing.T, s *stage, r *client.Answer) {
		t.Helper()
		p := answer[shop.Payment](t, r)
		shown := decode[shop.Payment](t, s.call(0, "GET", "/payments/"+p.ID, "", nil, nil))
		if got := s.ledger(t, p.ID); p.State != state || shown.State != state || got != ledger {
			t.Errorf("%s, it is shown as %s, and the ledger has %q", r.Body, shown.State, got)
		}
	}
}

func intentIs(state string) func(*testing.T, *stage, *client.Answer) {
	return func(t *testing.T, s *stage, r *client.Answer) {
		t.Helper()
		i := answer[shop.Intent](t, r)
		if got := s.intentState(t, "/payment-intents/"+i.ID); i.State != state || got != state {
			t.Errorf("%s, and it is shown as %s", r.Body, got)
		}
	}
}

func answer[T any](t *testing.T, r *client.Answer) T {
	t.Helper()
	return decode[T](t, &reply{Status: r.Status, Header: r.Header, Body: r.Body})
}

// TestTheBooksScriptFindsWhatIsWrong: it would be of no use if it only ever agreed.
func TestTheBooksScriptFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{})
	p := s.charge(t)
	s.balance(t)
	_, err := http.Post(s.host.Processor+"/charges", "application/json", strings.NewReader(`{"amount":1,"currency":"EUR","card":"tok_visa","reference":"`+p.ID+`"}`))
	must(t, err)
	out, err := s.books(t)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"ledger: 1 entries have the key ''", "the ledger has charge, charge", "payments less refunds are 4200 EUR, and 4201 as the ledger says"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q: %s", want, out)
		}
	}
}
