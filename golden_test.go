package semel_test

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

// Whole exchanges as they are on the wire, each request sent twice: what the first client sees, and what its repeat
// does.
func TestR34_R38_R39_ExchangesOnTheWire(t *testing.T) {
	t.Parallel()
	created := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/17")
		w.Header().Add("Set-Cookie", "seen=1")
		w.Header().Add("Vary", "Accept, Accept-Encoding")
		w.Header().Add("Vary", "Origin")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":17}`)
	}
	for _, tt := range []struct {
		name   string
		policy semel.Policy
		f      http.HandlerFunc
	}{
		{"created", semel.Policy{}, created},
		{"no-content", semel.Policy{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }},
		{"trailers", semel.Policy{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "abc")
		}},
		{"stream", semel.Policy{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: 1\n\n")
			io.WriteString(w, "data: 2\n\n")
		}},
		{"stream-of-declared-length", semel.Policy{Stream: true}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "hello")
		}},
		{"stream-lost", semel.Policy{Stream: true}, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half")
			semel.FromContext(r.Context()).Lost(io.ErrUnexpectedEOF)
		}},
		{"over-the-limit", semel.Policy{MaxResponseBody: 10}, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "more than ten bytes")
		}},
		{"error-kept", semel.Policy{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) }},
		{"error-released", semel.Policy{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) }},
		{"lost", semel.Policy{}, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "thrown away")
			semel.FromContext(r.Context()).Lost(io.ErrUnexpectedEOF)
		}},
		{"early-hints", semel.Policy{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "page")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGuard(t, nil, tt.policy)
			w := newWire(t, "HTTP/1.1", g.Wrap(tt.f))
			var text strings.Builder
			for range 2 {
				text.WriteString(exchangeOf(t, w.url, "POST /payments HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n"+
					"Idempotency-Key: \"a-key\"\r\nX-Correlation-Id: c-1\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"+
					`{"amount":5}`))
			}
			matchGolden(t, "http/"+tt.name+".golden", text.String())
		})
	}
}

var changing = regexp.MustCompile(`(?m)^(Date|Idempotency-Expires): .*\r$`)

// exchangeOf sends a request and returns it with all that came, but for the times, which change from run to run.
func exchangeOf(t testing.TB, url, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return request + "\n--\n" + changing.ReplaceAllString(string(answer), "$1: (a time)\r") + "\n--\n"
}
