package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/webhook"
)

func TestAMessageIsPostedAndSignedWithTheTimeOfTheAttempt(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var payload []byte
	e, o := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		payload, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
	}))
	before := time.Now().Unix()
	err := send(t, newSender(t, at(e), o), outbox.Message{
		ID: "msg_1", Topic: "orders", Payload: []byte(`{"n":1}`),
		Headers: map[string]string{"content-type": "application/cloudevents+json", "X-Internal": "secret"},
	})
	if err != nil {
		t.Fatal(err)
	}
	timestamp := got.Header.Get("webhook-timestamp")
	var seconds int64
	if _, err := fmt.Sscan(timestamp, &seconds); err != nil || seconds < before || seconds > time.Now().Unix() {
		t.Errorf("webhook-timestamp is %q, want the time of the attempt", timestamp)
	}
	if got.Method != http.MethodPost || got.URL.Path != "/hooks" || string(payload) != `{"n":1}` ||
		got.Header.Get("webhook-id") != "msg_1" || got.Header.Get("Content-Type") != "application/cloudevents+json" ||
		got.Header.Get("X-Internal") != "" || got.Header.Get("webhook-signature") != signatureOf(knownSecret, "msg_1", timestamp, `{"n":1}`) {
		t.Errorf("posted %s %s %v %q", got.Method, got.URL, got.Header, payload)
	}
}

func TestWhatAnAnswerMeans(t *testing.T) {
	t.Parallel()
	var redirected atomic.Bool
	e, o := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.Header.Get("webhook-id"))
		if err != nil {
			t.Error(err)
		}
		if r.URL.Path != "/hooks" {
			redirected.Store(true)
		}
		switch status {
		case http.StatusTemporaryRedirect:
			w.Header().Set("Location", "/elsewhere")
		case http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", "120")
		case http.StatusTooManyRequests:
			w.Header().Set("Retry-After", time.Now().Add(10*365*24*time.Hour).UTC().Format(http.TimeFormat))
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "because\x00 of ", strings.Repeat("x", 1<<20))
	}))
	s := newSender(t, at(e), o)
	for _, c := range []struct {
		status int
		ok     bool
		final  bool
		after  string
	}{
		{200, true, false, ""},
		{204, true, false, ""},
		{307, false, false, ""},
		{400, false, false, ""},
		{404, false, false, ""},
		{410, false, true, ""},
		{429, false, false, "24h0m0s"}, // nobody can ask for years
		{500, false, false, ""},
		{503, false, false, "2m0s"},
	} {
		err := send(t, s, outbox.Message{ID: fmt.Sprint(c.status)})
		var after string
		if err != nil {
			_, after, _ = strings.Cut(err.Error(), "to be sent again in ")
		}
		if (err == nil) != c.ok || errors.Is(err, outbox.ErrRefused) != c.final || after != c.after {
			t.Errorf("%d: %v, want ok %v, final %v, after %q", c.status, err, c.ok, c.final, c.after)
		}
		if err != nil && (len(err.Error()) > 400 || strings.Contains(err.Error(), "\x00") || !strings.Contains(err.Error(), fmt.Sprint(c.status))) {
			t.Errorf("%d: the error is %q", c.status, err)
		}
	}
	if redirected.Load() {
		t.Error("a redirect was followed")
	}
}

func TestAnEndpointThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, at(webhook.Endpoint{ID: "slow", URL: "https://example.com/?token=abc", Secrets: []string{knownSecret}}), webhook.Options{})
		s.Over(roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		began := time.Now()
		err := send(t, s, outbox.Message{ID: "m"})
		if err == nil || time.Since(began) != 15*time.Second || errors.Is(err, outbox.ErrRefused) {
			t.Errorf("%v after %v, want a failure after 15 s", err, time.Since(began))
		}
		if err != nil && strings.Contains(err.Error(), "abc") {
			t.Errorf("the error shows the URL, which may hold a secret: %v", err)
		}
	})
}

// A name that stands for an address of the sender's own network is found out when it is connected to.
func TestAddressesThatAreNotPublicAreNotConnectedTo(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{}, 10)
	e, o := served(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	o.AllowNetworks = nil
	_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(e.URL, "https://"), "/hooks"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		e.URL = "https://" + host + ":" + port + "/"
		if err := send(t, newSender(t, at(e), o), outbox.Message{ID: "m"}); err == nil {
			t.Errorf("%s was connected to", host)
		}
	}
	if len(reached) > 0 {
		t.Error("the server was reached")
	}
	o.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("::ffff:127.0.0.0/104")}
	e.URL = "https://127.0.0.1:" + port + "/"
	if err := send(t, newSender(t, at(e), o), outbox.Message{ID: "m"}); err != nil {
		t.Errorf("an allowed network: %v", err)
	}
}

func TestWhatIsWrongWithAnEndpointOrAMessageIsSaid(t *testing.T) {
	t.Parallel()
	s := func(e webhook.Endpoint) *webhook.Sender {
		sender := newSender(t, at(e), webhook.Options{})
		sender.Over(roundTrip(func(*http.Request) (*http.Response, error) {
			t.Error("something was sent")
			return nil, errors.New("no network")
		}))
		return sender
	}
	ok := webhook.Endpoint{ID: "acme", URL: "https://example.com", Secrets: []string{knownSecret}}
	for _, c := range []struct {
		change func(*webhook.Endpoint)
		id     string
		want   string
		final  bool
	}{
		{func(e *webhook.Endpoint) { e.URL = "http://example.com" }, "m", "want https", false},
		{func(e *webhook.Endpoint) { e.URL = "file:///etc/passwd" }, "m", "want https", false},
		{func(e *webhook.Endpoint) { e.URL = "https://user:word@example.com" }, "m", "has a user", false},
		{func(e *webhook.Endpoint) { e.URL = "https://ex ample.com" }, "m", "URL", false},
		{func(e *webhook.Endpoint) { e.Secrets = nil }, "m", "no secret", false},
		{func(e *webhook.Endpoint) { e.Secrets = []string{"whsec_!"} }, "m", "base64", false},
		{func(e *webhook.Endpoint) { e.Disabled = true }, "m", "is disabled", true},
		{func(*webhook.Endpoint) {}, "a.b", "full stop", true},
	} {
		e := ok
		c.change(&e)
		err := send(t, s(e), outbox.Message{ID: c.id})
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, outbox.ErrRefused) != c.final || strings.Contains(err.Error(), "word") {
			t.Errorf("%+v, id %s: %v; want %q, final %v", e, c.id, err, c.want, c.final)
		}
	}
}

// What no request can carry is the fault of the message, and not a failure of its endpoint.
func TestAContentTypeThatCannotBeSentIsRefused(t *testing.T) {
	t.Parallel()
	r := &registry{Endpoint: webhook.Endpoint{ID: "acme", URL: "https://example.com", Secrets: []string{knownSecret}}}
	s := newSender(t, r.find, webhook.Options{Failing: r.failing})
	m := outbox.Message{ID: "m", Headers: map[string]string{"Content-Type": "application/jsön"}}
	if err := send(t, s, m); !errors.Is(err, outbox.ErrRefused) || r.notes > 0 {
		t.Errorf("%v, %d notes; want it refused, and nothing noted", err, r.notes)
	}
}

// What an endpoint's function throws is the failure of its message alone, and never a delivery.
func TestFunctionsThatThrowFailTheirMessageOnly(t *testing.T) {
	t.Parallel()
	e, o := served(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s := newSender(t, func(_ context.Context, m *outbox.Message) (webhook.Endpoint, error) {
		switch m.ID {
		case "panic":
			panic("no such tenant")
		case "goexit":
			runtime.Goexit()
		case "error":
			return webhook.Endpoint{}, errors.New("database is down")
		}
		return e, nil
	}, o)
	errs := s.Publish(t.Context(), []*outbox.Message{{ID: "panic"}, {ID: "goexit"}, {ID: "error"}, {ID: "good"}})
	for i, want := range []bool{false, false, false, true} {
		if (errs[i] == nil) != want || errors.Is(errs[i], outbox.ErrRefused) {
			t.Errorf("message %d: %v, want delivered %v and nothing refused", i, errs[i], want)
		}
	}
}

func TestMessagesOfABatchAreSentAtOnceUpToTheConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, at(webhook.Endpoint{URL: "https://example.com", Secrets: []string{knownSecret}}), webhook.Options{Concurrency: 3})
		var mu sync.Mutex
		now, most := 0, 0
		s.Over(roundTrip(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			status := http.StatusOK
			return answering(&status)(r)
		}))
		batch := make([]*outbox.Message, 7)
		for i := range batch {
			batch[i] = &outbox.Message{ID: fmt.Sprint("m", i)}
		}
		began := time.Now()
		if err := errors.Join(s.Publish(t.Context(), batch)...); err != nil || most != 3 || time.Since(began) != 3*time.Second {
			t.Errorf("%v; %d at once, %v; want 3 at once, 3 s", err, most, time.Since(began))
		}
	})
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []webhook.Options{
		{Timeout: -1}, {Concurrency: -1}, {AllowNetworks: []netip.Prefix{{}}},
	} {
		if _, err := webhook.New(at(webhook.Endpoint{}), o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
	if _, err := webhook.New(nil, webhook.Options{}); err == nil {
		t.Error("accepted no endpoints")
	}
}

// One message alone is tried for long enough to find out that its endpoint is to be disabled.
func TestAMessageIsTriedForLongerThanItsEndpointMayFail(t *testing.T) {
	t.Parallel()
	s := newSender(t, at(webhook.Endpoint{}), webhook.Options{})
	o := s.RelayOptions()
	if _, err := outbox.NewRelay(noStore{}, s, o); err != nil {
		t.Error(err)
	}
	var all, before time.Duration
	for attempts := 1; attempts < o.MaxAttempts; attempts++ {
		d := o.Backoff(attempts)
		if d < before-before/10 {
			t.Errorf("after attempt %d it waits for %v, after the one before for %v", attempts, d, before)
		}
		before = d
		all += d
	}
	if o.Backoff(1) > 6*time.Second || all < 5*24*time.Hour || all > 6*24*time.Hour {
		t.Errorf("tried again after %v, and for %v; want about 5 s, and 5 to 6 days", o.Backoff(1), all)
	}
	if o.Backoff(1000) < 24*time.Hour {
		t.Error("beyond the schedule it is tried more often") // whoever sets a larger MaxAttempts
	}
	if o.PublishTimeout <= 15*time.Second || o.Batch != 16 {
		t.Errorf("a batch of %d has %v, want all attempts to fit in", o.Batch, o.PublishTimeout)
	}
}

type noStore struct{ outbox.Store }
