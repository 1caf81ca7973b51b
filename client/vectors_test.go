package client

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/refusal"
)

// The vectors in testdata, which drive the clients in all languages; testdata/README.md says what they mean.

type vectors struct {
	Version int
	Headers []struct {
		Name, Key string
		Times     int
		TextTimes bool
		Bare      bool
		Text      *string
	}
	Keys []struct {
		Text string
		Key  *string
	}
	RetryAfter []struct {
		Name, Now string
		Status    int
		Headers   map[string]string
		MS        *int64
	}
	Delays []struct {
		BaseMS, LimitMS int64
		Retry           int
		Random          float64
		MS              int64
	}
	Classify []struct {
		Status  int
		Headers map[string]string
		Problem json.RawMessage
		Unkeyed bool
		Retry   bool
	}
	Calls []vectorCall
}

type vectorCall struct {
	Name, Method string
	Hops         bool // for clients that repeat one hop of a call
	Key          json.RawMessage
	Kept         bool
	KeyAgeMS     int64
	Headers      map[string]string
	Options      struct {
		MaxAttempts     int
		MaxAgeMS        int64
		MaxRetryAfterMS int64
		DeadlineMS      int64
		BaseMS          int64
		PollEveryMS     int64
		StatusURL       string
		CrossOrigin     []string
		Bare            bool
		Dialect         string
		Header          string
		Methods         []string
		Budget          *Budget
	}
	Script   []vectorStep
	DelaysMS [][2]int64
	Outcome  struct {
		Answer       int
		Replayed     bool
		State        string
		Error        *int
		Code         string
		Reason       Reason
		Network      bool
		RetryAfterMS *int64
	}
}

type vectorStep struct {
	Network, Breaks bool
	Status          int
	Headers         map[string]string
	Problem, JSON   json.RawMessage
	Request         struct {
		Method, Path *string
		Body         *string
		Key          json.RawMessage
	}
}

//go:embed testdata/vectors.json
var vectorsFile []byte

func loadVectors(t *testing.T) (v vectors) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(vectorsFile))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode vectors: %v", err)
	}
	if v.Version != 1 || len(v.Headers) == 0 || len(v.Keys) == 0 || len(v.RetryAfter) == 0 || len(v.Delays) == 0 ||
		len(v.Classify) == 0 || len(v.Calls) == 0 {
		t.Fatal("the vectors are of another version, or a list is empty")
	}
	return v
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func headerOf(m map[string]string) http.Header {
	h := http.Header{}
	for k, v := range m {
		h.Set(k, v)
	}
	return h
}

func TestR65_VectorsOfKeys(t *testing.T) {
	t.Parallel()
	all := loadVectors(t)
	for _, v := range all.Headers {
		key := strings.Repeat(v.Key, max(1, v.Times))
		got, err := encode(key, v.Bare)
		if v.Text == nil {
			if err == nil || !errors.Is(err, refusal.KeyInvalid) {
				t.Errorf("%s: %q, %v; want ErrKeyInvalid", v.Name, got, err)
			}
			continue
		}
		want := *v.Text
		if v.TextTimes {
			want = `"` + strings.Repeat(strings.Trim(want, `"`), v.Times) + `"`
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", v.Name, got, err, want)
		}
	}
	for _, v := range all.Keys {
		got, err := decode(v.Text)
		if v.Key == nil {
			if !errors.Is(err, refusal.KeyInvalid) {
				t.Errorf("decode %q: %q, %v; want ErrKeyInvalid", v.Text, got, err)
			}
		} else if err != nil || got != *v.Key {
			t.Errorf("decode %q: %q, %v; want %q", v.Text, got, err, *v.Key)
		}
	}
}

func TestR67_VectorsOfDelays(t *testing.T) {
	t.Parallel()
	all := loadVectors(t)
	for _, v := range all.RetryAfter {
		now := time.Now()
		if v.Now != "" {
			var err error
			if now, err = http.ParseTime(v.Now); err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
		}
		v.Status = cmp.Or(v.Status, http.StatusTooManyRequests)
		got, ok := retryAfter(v.Status, headerOf(v.Headers), now)
		if ok != (v.MS != nil) || ok && got != ms(*v.MS) {
			t.Errorf("%s: %v, %v", v.Name, got, ok)
		}
	}
	for _, v := range all.Delays {
		if got := FullJitter(ms(v.BaseMS), ms(v.LimitMS))(v.Retry, v.Random); got != ms(v.MS) {
			t.Errorf("%+v: %v", v, got)
		}
	}
}

func TestR66_VectorsOfWhatIsRepeated(t *testing.T) {
	t.Parallel()
	for _, v := range loadVectors(t).Classify {
		h := headerOf(v.Headers)
		if v.Problem != nil {
			h.Set("Content-Type", "application/problem+json; charset=utf-8")
		}
		doc := readProblem(v.Status, h, v.Problem)
		if told := v.Problem != nil || h["Idempotency-Code"] != nil && v.Status >= 400; told != (doc != nil) {
			t.Fatalf("%d %v %s is a problem: %v", v.Status, v.Headers, v.Problem, doc != nil)
		}
		if got := judge(v.Status, h, doc, !v.Unkeyed).again(); got != v.Retry {
			t.Errorf("%d %v %s, unkeyed %v: retry %v, want %v", v.Status, v.Headers, v.Problem, v.Unkeyed, got, v.Retry)
		}
	}
}

func TestR66_VectorsOfCalls(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, v := range loadVectors(t).Calls {
		if names[v.Name] {
			t.Errorf("two vectors of the name %q", v.Name)
		}
		names[v.Name] = true
		for r, random := range []string{"least", "most"} {
			t.Run(v.Name+"/"+random, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { v.play(t, r) })
			})
		}
	}
}

const vectorBody = `{"amount":5}`

// play makes the call with a random source that always gives random, 0 or 1.
func (v *vectorCall) play(t *testing.T, random int) {
	o := Options{
		Header: v.Options.Header, Bare: v.Options.Bare, Methods: v.Options.Methods, MaxAttempts: v.Options.MaxAttempts,
		MaxAge: ms(v.Options.MaxAgeMS), MaxRetryAfter: ms(v.Options.MaxRetryAfterMS), PollEvery: ms(v.Options.PollEveryMS),
		StatusURL: v.Options.StatusURL, CrossOrigin: v.Options.CrossOrigin, Budget: Budget{Off: true},
		Random: func() float64 { return float64(random) },
	}
	if v.Options.Dialect != "" {
		o.Dialect = map[string]func() Dialect{
			"stripe": Stripe, "square": Square, "paypal": PayPal, "adyen": Adyen, "draft07": Draft07,
		}[v.Options.Dialect]()
	}
	if v.Options.Budget != nil {
		o.Budget = *v.Options.Budget
	}
	base := ms(v.Options.BaseMS)
	base = cmp.Or(base, DefaultBackoffBase)
	o.Backoff = FullJitter(base, DefaultBackoffLimit)
	o.Header = cmp.Or(o.Header, DefaultHeader)
	script := &scripted{t: t, steps: v.Script, header: http.CanonicalHeaderKey(o.Header)}
	transport, err := New(script, o)
	if err != nil {
		t.Fatal(err)
	}

	ctx := t.Context()
	if v.Options.DeadlineMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ms(v.Options.DeadlineMS))
		defer cancel()
	}
	key := NewKey()
	if v.Kept {
		key.unsent = nil
	}
	key.Value, key.Made = "order-42", time.Now().Add(-ms(v.KeyAgeMS))
	if string(v.Key) == "null" {
		key = Key{}
	}
	method := v.Method // v is played twice at once
	method = cmp.Or(method, http.MethodPost)
	var body io.Reader
	if method != http.MethodGet {
		body = struct{ io.Reader }{strings.NewReader(vectorBody)} // without GetBody
	}
	r, err := http.NewRequest(method, "https://api.example/payments", body)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range v.Headers {
		r.Header.Set(name, value)
	}
	answer, err := Do(ctx, &http.Client{Transport: transport}, key, r)

	v.checkOutcome(t, answer, err, script.broken)
	if len(script.at) != len(v.Script) {
		t.Errorf("%d requests, want %d", len(script.at), len(v.Script))
	}
	var got, want []string
	for i := 1; i < len(script.at); i++ {
		got = append(got, script.at[i].Sub(script.at[i-1]).String())
	}
	for _, bounds := range v.DelaysMS {
		want = append(want, ms(bounds[random]).String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
}

func (v *vectorCall) checkOutcome(t *testing.T, answer *Answer, err error, broken bool) {
	want := v.Outcome
	if want.Answer != 0 && want.Error == nil && want.Reason == "" && want.Code == "" && !want.Network {
		if err != nil || answer.Status != want.Answer || answer.Replayed != want.Replayed || answer.State != want.State {
			t.Errorf("%+v, %v; want %+v", answer, err, want)
		}
		return
	}
	var e *Error
	if answer != nil || !errors.As(err, &e) {
		t.Fatalf("%+v, %v; want an *Error", answer, err)
	}
	if (e.Answer != nil) != (want.Error != nil) || e.Answer != nil && e.Answer.Status != *want.Error {
		t.Errorf("%v: last answer %+v, want %v", e, e.Answer, want.Error)
	}
	if e.Reason != want.Reason || errors.Is(err, ErrExhausted) != (want.Reason != "") {
		t.Errorf("%v: reason %q, want %q", e, e.Reason, want.Reason)
	}
	if got := errors.Is(err, errScripted); got != want.Network || got && !broken {
		t.Errorf("%v: of the network %v, want %v", e, got, want.Network)
	}
	for code, sentinel := range map[string]error{
		"IDEMPOTENCY_KEY_INVALID":        refusal.KeyInvalid,
		"IDEMPOTENCY_KEY_REUSED":         refusal.KeyReused,
		"IDEMPOTENCY_KEY_EXPIRED":        refusal.KeyExpired,
		"IDEMPOTENCY_IN_PROGRESS":        refusal.InProgress,
		"IDEMPOTENCY_OUTCOME_UNKNOWN":    refusal.OutcomeUnknown,
		"IDEMPOTENCY_OUTCOME_PENDING":    refusal.OutcomePending,
		"IDEMPOTENCY_REPLAY_UNAVAILABLE": refusal.ReplayUnavailable,
		"IDEMPOTENCY_NO_ANSWER":          refusal.NoAnswer,
	} {
		if got := errors.Is(err, sentinel); got != (code == want.Code) {
			t.Errorf("%v: is %v: %v", e, sentinel, got)
		}
	}
	switch {
	case want.RetryAfterMS == nil && !e.RetryAt.IsZero():
		t.Errorf("%v: to come again at %v, want no time", e, e.RetryAt)
	case want.RetryAfterMS != nil && time.Until(e.RetryAt) != ms(*want.RetryAfterMS):
		t.Errorf("%v: to come again in %v, want %dms", e, time.Until(e.RetryAt), *want.RetryAfterMS)
	}
}

var errScripted = errors.New("the connection broke")

// scripted answers as a vector says, and checks the requests.
type scripted struct {
	t      *testing.T
	steps  []vectorStep
	header string

	at     []time.Time
	key    []string // of the request before
	broken bool
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	n := len(s.at)
	s.at = append(s.at, time.Now())
	if n >= len(s.steps) {
		return nil, fmt.Errorf("request %d is not in the script", n+1)
	}
	step := s.steps[n]
	s.check(n, r, &step)
	if s.broken = step.Network || step.Breaks; step.Network {
		return nil, errScripted
	}
	h, body := headerOf(step.Headers), "{}"
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	switch {
	case step.Problem != nil:
		h.Set("Content-Type", "application/problem+json")
		body = string(step.Problem)
	case step.JSON != nil:
		body = string(step.JSON)
	}
	reader := io.Reader(strings.NewReader(body))
	if step.Breaks {
		reader = io.MultiReader(strings.NewReader("{"), failing{errScripted})
	}
	return &http.Response{StatusCode: step.Status, Header: h, ContentLength: -1, Body: io.NopCloser(reader)}, nil
}

func (s *scripted) check(n int, r *http.Request, step *vectorStep) {
	s.t.Helper()
	var text []byte
	if r.Body != nil {
		var err error
		if text, err = io.ReadAll(r.Body); err != nil {
			s.t.Errorf("request %d: read body: %v", n+1, err)
		}
		r.Body.Close()
	}
	h := r.Header.Clone()
	key := takeHeader(h, s.header)
	want := step.Request
	if want.Method != nil && r.Method != *want.Method {
		s.t.Errorf("request %d: method %s, want %s", n+1, r.Method, *want.Method)
	}
	if want.Path != nil && r.URL.Path != *want.Path {
		s.t.Errorf("request %d: path %s, want %s", n+1, r.URL.Path, *want.Path)
	}
	if want.Body != nil && string(text) != *want.Body {
		s.t.Errorf("request %d: body %q, want %q", n+1, text, *want.Body)
	}
	var as string
	switch err := json.Unmarshal(want.Key, &as); {
	case want.Key == nil:
	case err != nil:
		s.t.Errorf("request %d: %v", n+1, err)
	case string(want.Key) == "null":
		if len(key) > 0 {
			s.t.Errorf("request %d: key %q, want none", n+1, key)
		}
	case as == "same":
		if len(key) != 1 || n > 0 && !slices.Equal(key, s.key) {
			s.t.Errorf("request %d: key %q, want %q", n+1, key, s.key)
		}
	case as == "made":
		if len(key) != 1 || len(key[0]) != 38 {
			s.t.Errorf("request %d: key %q, want a quoted UUID", n+1, key)
		}
	case !slices.Equal(key, []string{as}):
		s.t.Errorf("request %d: key %q, want %q", n+1, key, as)
	}
	s.key = key
}
