package semel_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/refusal"
)

// The project's own client follows a 202 up, and asks what became of an answer that it has lost.
func TestR33_R70_TheClientAsksTheGuard(t *testing.T) {
	t.Parallel()
	g, ask, _ := asyncGuard(t, nil, inRealTime(async()))
	release := make(chan struct{})
	var paid ledger
	mux := http.NewServeMux()
	mux.Handle(operationsPath, ask)
	mux.Handle(operationsPath+"/", ask)
	mux.Handle("POST /payments", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Prefer") != "" {
			<-release
		}
		if r.Header.Get("X-Decline") != "" {
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		paid.pay(w, r)
	})))
	s := httptest.NewServer(mux)
	defer s.Close()
	lossy := &losing{base: http.DefaultTransport}
	asked := 0
	transport, err := client.New(lossy, client.Options{
		PollEvery: time.Millisecond, StatusURL: operationsPath, MaxRetryAfter: time.Nanosecond,
		OnAttempt: func(a client.Attempt) {
			if a.Kind == client.KindPoll || a.Kind == client.KindStatus {
				if asked++; asked == 2 {
					close(release)
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	hc := &http.Client{Transport: transport}
	call := func(header ...string) (*client.Answer, error) {
		r := post("", `{}`, header...)
		r.URL, r.RequestURI = mustURL(t, s.URL+"/payments"), ""
		return client.Do(t.Context(), hc, client.NewKey(), r)
	}

	got, err := call("Prefer", asyncPreferred)
	if err != nil || got.Status != 200 || got.State != "succeeded" || asked < 2 || paid.count() != 1 {
		t.Fatalf("202: %+v, %v after %d questions, %d effects", got, err, asked, paid.count())
	}
	lossy.lose = true
	got, err = call()
	if err != nil || got.State != "succeeded" || paid.count() != 2 || lossy.lost != 1 {
		t.Errorf("answer lost: %+v, %v, %d effects, %d lost", got, err, paid.count(), lossy.lost)
	}
	lossy.lose = true
	got, err = call("X-Decline", "1")
	if err != nil || got.State != "failed" || paid.count() != 2 {
		t.Errorf("declined, answer lost: %+v, %v, %d effects", got, err, paid.count())
	}
	drained(t, g)
}

// losing loses the answer to the next POST.
type losing struct {
	base http.RoundTripper
	lose bool
	lost int
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.base.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && l.lose {
		l.lose = false
		l.lost++
		res.Body.Close()
		return nil, errors.New("connection reset")
	}
	return res, err
}

// A client that is told that an operation is unknown takes it for that, and does not send it again.
func TestR33_R70_TheClientTakesTheGuardsWord(t *testing.T) {
	t.Parallel()
	g, ask, _ := linkedGuard(t, nil, semel.Options{})
	runs := 0
	mux := http.NewServeMux()
	mux.Handle(operationsPath, ask)
	mux.Handle("POST /payments", g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		runs++
		semel.FromContext(r.Context()).Lost(errDown)
	})))
	s := httptest.NewServer(mux)
	defer s.Close()
	transport, err := client.New(&losing{base: http.DefaultTransport, lose: true}, client.Options{StatusURL: operationsPath})
	if err != nil {
		t.Fatal(err)
	}
	r := post("", `{}`)
	r.URL, r.RequestURI = mustURL(t, s.URL+"/payments"), ""
	got, err := client.Do(t.Context(), &http.Client{Transport: transport}, client.NewKey(), r)
	if !errors.Is(err, refusal.OutcomeUnknown) || runs != 1 {
		t.Errorf("%+v, %v after %d runs; want unknown after one", got, err, runs)
	}
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
