package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/client"
)

// A vendor answers as an API of its dialect does, whose own network is flaky: the facts are of the public
// documentation.
type vendor struct {
	dialect  client.Dialect
	key      func(r *http.Request, body string) string
	busy     func() *http.Response // the operation of the key runs
	mismatch func() *http.Response
	trouble  func() *http.Response // nothing was done
	replay   []string              // headers of an answer that is given again
}

func bareKey(name string) func(*http.Request, string) string {
	return func(r *http.Request, _ string) string { return r.Header.Get(name) }
}

var vendors = map[string]vendor{
	"stripe": {
		dialect: client.Stripe(), key: bareKey("Idempotency-Key"),
		busy: func() *http.Response {
			return response(409, `{"error":{"type":"idempotency_error","code":"idempotency_key_in_use"}}`, "Stripe-Should-Retry", "true")
		},
		mismatch: func() *http.Response { return response(400, `{"error":{"type":"idempotency_error"}}`) },
		trouble: func() *http.Response {
			return response(424, `{"error":{"type":"api_error"}}`, "Stripe-Should-Retry", "true")
		},
		replay: []string{"Idempotent-Replayed", "true"},
	},
	"square": {
		dialect: client.Square(),
		key: func(_ *http.Request, body string) string {
			var fields struct {
				Key string `json:"idempotency_key"`
			}
			_ = json.Unmarshal([]byte(body), &fields)
			return fields.Key
		},
		busy: func() *http.Response {
			return response(429, `{"errors":[{"category":"RATE_LIMIT_ERROR","code":"RATE_LIMITED"}]}`)
		},
		mismatch: func() *http.Response { return response(400, `{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}`) },
		trouble:  func() *http.Response { return response(500, `{"errors":[{"category":"API_ERROR"}]}`) },
	},
	"paypal": {
		dialect: client.PayPal(), key: bareKey("PayPal-Request-Id"),
		busy: func() *http.Response {
			return response(409, `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`)
		},
		mismatch: func() *http.Response { return response(422, `{"details":[{"issue":"DUPLICATE_REQUEST_ID"}]}`) },
		trouble:  func() *http.Response { return response(503, `{"name":"SERVICE_UNAVAILABLE"}`) },
	},
	"adyen": {
		dialect: client.Adyen(), key: bareKey("Idempotency-Key"),
		busy:     func() *http.Response { return response(422, `{"errorCode":"704"}`, "Transient-Error", "true") },
		mismatch: func() *http.Response { return response(422, `{"errorCode":"704"}`) },
		trouble:  func() *http.Response { return response(422, `{"errorCode":"905"}`, "Transient-Error", "true") },
	},
	"draft07": {
		dialect: client.Draft07(), key: func(r *http.Request, _ string) string {
			return strings.Trim(r.Header.Get("Idempotency-Key"), `"`)
		},
		busy: func() *http.Response {
			return response(409, `{"title":"A request is outstanding for this Idempotency-Key"}`)
		},
		mismatch: func() *http.Response { return response(422, `{"title":"Idempotency-Key is already used"}`) },
		trouble:  func() *http.Response { return response(503, `{}`) },
	},
}

// A thousand calls to a server of each dialect, over a network that loses requests and answers: each has one effect,
// and no call ends with another answer than its own.
func TestR66_AThousandCallsInEachDialect(t *testing.T) {
	t.Parallel()
	for name, v := range vendors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const calls = 1000
				random := rand.New(rand.NewPCG(5, 0))
				type operation struct {
					body  string
					ended time.Time
				}
				effects := map[string]operation{} // by key
				faults := map[string]int{}
				run := func(r *http.Request) *http.Response {
					text, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					key := v.key(r, string(text))
					if key == "" {
						t.Errorf("%s came without a key", text)
					}
					op, known := effects[key]
					switch {
					case known && op.body != string(text):
						return v.mismatch()
					case known && time.Now().Before(op.ended):
						faults["busy"]++
						return v.busy()
					case known:
						return response(201, op.body, v.replay...)
					case random.IntN(10) == 0:
						faults["trouble"]++
						return v.trouble()
					}
					effects[key] = operation{string(text), time.Now().Add(time.Duration(random.IntN(3)) * time.Second)}
					return response(201, string(text))
				}
				net := &wire{answer: func(_ int, r *http.Request) (*http.Response, error) {
					switch random.IntN(5) {
					case 0:
						faults["lost before"]++
						return nil, errBroken
					case 1:
						faults["lost after"]++
						run(r)
						return nil, errBroken
					}
					return run(r), nil
				}}
				hc := newClient(t, net, client.Options{Dialect: v.dialect, MaxAttempts: 100, Random: random.Float64})
				for n := range calls {
					body := fmt.Sprintf(`{"payment":%d}`, n)
					a, err := client.Do(t.Context(), hc, client.NewKey(), post(t, body))
					if err != nil || a.Status != 201 || !strings.Contains(string(a.Body), fmt.Sprintf(`"payment":%d}`, n)) {
						t.Fatalf("call %d: %+v, %v", n, a, err)
					}
				}
				if len(effects) != calls || len(faults) != 4 {
					t.Errorf("%d effects of %d calls, faults %v", len(effects), calls, faults)
				}
			})
		})
	}
}

// A body that is to hold the key is sent with it, and with the caller's own as it stands.
func TestR65_AKeyInTheBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, want string }{
		{`{}`, `{"idempotency_key":"k"}`},
		{` { "a": 12345678901234567890 } `, `{"idempotency_key":"k", "a": 12345678901234567890 } `},
		{`{"idempotency_key":"k","a":1}`, `{"idempotency_key":"k","a":1}`},
		{`{"idempotency_key":"other"}`, ""},
		{`[]`, ""},
		{`null`, ""},
		{``, ""},
		{`{"a":`, ""},
	} {
		net := statuses(201)
		r := post(t, c.body)
		_, err := client.Do(t.Context(), newClient(t, net, client.Options{Dialect: client.Square()}), client.Key{Value: "k"}, r)
		switch got := net.requests(); {
		case c.want == "" && (err == nil || len(got) > 0):
			t.Errorf("%s: %v after %d requests, want it refused", c.body, err, len(got))
		case c.want != "" && (err != nil || len(got) != 1 || got[0].body != c.want || got[0].header.Get("Idempotency-Key") != ""):
			t.Errorf("%s: sent %+v, %v; want %s", c.body, got, err, c.want)
		}
	}
}
