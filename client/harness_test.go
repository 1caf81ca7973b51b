package client_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/client"
)

var errBroken = errors.New("connection reset")

// roundTrip is a function as a RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A received is a request as it arrives.
type received struct {
	at     time.Time
	method string
	url    string
	header http.Header
	body   string
}

// wire is a network whose other end is a function in the process, and remembers what has passed. Requests are written
// and read again, as on a connection.
type wire struct {
	answer func(n int, r *http.Request) (*http.Response, error) // n counts from 1; the request is as a server sees it

	mu   sync.Mutex
	seen []received
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := r.Write(&buf); err != nil {
		return nil, err
	}
	in, err := http.ReadRequest(bufio.NewReader(&buf))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	in.Body = io.NopCloser(bytes.NewReader(text))
	in.URL.Scheme, in.URL.Host = r.URL.Scheme, in.Host
	in = in.WithContext(r.Context())
	w.mu.Lock()
	w.seen = append(w.seen, received{time.Now(), in.Method, in.URL.String(), in.Header, string(text)})
	n := len(w.seen)
	w.mu.Unlock()
	res, err := w.answer(n, in)
	if res != nil {
		res.Request = r
	}
	return res, err
}

// requests returns what has arrived.
func (w *wire) requests() []received {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// gaps returns the times between the requests.
func (w *wire) gaps() (list []time.Duration) {
	seen := w.requests()
	for i := 1; i < len(seen); i++ {
		list = append(list, seen[i].at.Sub(seen[i-1].at))
	}
	return list
}

// keys returns the texts of the key's header, "" where there is none.
func (w *wire) keys() (list []string) {
	for _, r := range w.requests() {
		list = append(list, strings.Join(r.header.Values("Idempotency-Key"), " | "))
	}
	return list
}

// statuses answers with one status after the other, and then with the last; 0 is a broken connection.
func statuses(list ...int) *wire {
	return &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
		status := list[min(n, len(list))-1]
		if status == 0 {
			return nil, errBroken
		}
		return response(status, "{}"), nil
	}}
}

// served hands the requests to a handler.
func served(h http.Handler) *wire {
	return &wire{answer: func(_ int, r *http.Request) (*http.Response, error) { return serve(h, r), nil }}
}

func serve(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// response makes an answer; header holds name, value pairs.
func response(status int, body string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode: status, Header: h, ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

func problem(status int, code string, header ...string) *http.Response {
	header = append(header, "Content-Type", "application/problem+json")
	return response(status, `{"type":"urn:x","title":"refused","code":"`+code+`"}`, header...)
}

// newClient returns an http.Client with a transport around base. Without a budget option the budget is off.
func newClient(t testing.TB, base http.RoundTripper, o client.Options) *http.Client {
	t.Helper()
	if o.Budget == (client.Budget{}) {
		o.Budget.Off = true
	}
	if o.Random == nil {
		o.Random = func() float64 { return 1 }
	}
	transport, err := client.New(base, o)
	if err != nil {
		t.Fatalf("new transport: %v", err)
	}
	return &http.Client{Transport: transport}
}

const target = "https://api.example/payments"

func post(t testing.TB, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// fetch sends a request by hc, and returns the status and the body, 0 and the error where there is none.
func fetch(hc *http.Client, r *http.Request) (int, string, error) {
	res, err := hc.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// attempts keeps what OnAttempt was told.
type attempts struct {
	mu   sync.Mutex
	list []client.Attempt
}

func (a *attempts) add(x client.Attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, x)
}

// checkError checks that err is an *Error with a reason, and returns it.
func checkError(t testing.TB, err error, reason client.Reason) *client.Error {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want a *client.Error", err, err)
	}
	if e.Reason != reason || errors.Is(err, client.ErrExhausted) != (reason != "") {
		t.Errorf("error %v: reason %q, exhausted %v; want reason %q", e, e.Reason, errors.Is(err, client.ErrExhausted), reason)
	}
	return e
}
