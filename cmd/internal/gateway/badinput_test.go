package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/refusal"
)

func TestR2_R3_R4_R6_R62_MalformedKeysAreRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for name, lines := range map[string]string{
		"empty":             "Idempotency-Key:\r\n",
		"blank":             "Idempotency-Key:  \t\r\n",
		"empty quotes":      "Idempotency-Key: \"\"\r\n",
		"unclosed quote":    "Idempotency-Key: \"abc\r\n",
		"behind the quote":  "Idempotency-Key: \"abc\"x\r\n",
		"bad escape":        "Idempotency-Key: \"a\\n\"\r\n",
		"a space":           "Idempotency-Key: a b\r\n",
		"a comma":           "Idempotency-Key: a,b\r\n",
		"a semicolon":       "Idempotency-Key: a;b\r\n",
		"two equal lines":   "Idempotency-Key: a\r\nIdempotency-Key: a\r\n",
		"two lines":         "Idempotency-Key: a\r\nidempotency-key: b\r\n",
		"a quote and SQL":   "Idempotency-Key: '; DROP TABLE records\r\n",
		"beyond ASCII":      "Idempotency-Key: caf\xc3\xa9\r\n",
		"too long":          "Idempotency-Key: " + strings.Repeat("k", 256) + "\r\n",
		"a tab in quotes":   "Idempotency-Key: \"a\tb\"\r\n",
		"list of two":       "Idempotency-Key: \"a\", \"b\"\r\n",
		"nothing but quote": "Idempotency-Key: \"\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\n"+lines+"Content-Length: 2\r\n\r\nok")
			a.wants(t, 400, refusal.KeyInvalid)
		})
	}
	t.Cleanup(func() {
		if n := len(u.requests()); n != 0 {
			t.Errorf("upstream executed %d requests with malformed keys", n)
		}
	})
}

func TestR62_ControlCharactersInAHeaderAreRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, value := range []string{"a\x00b", "a\x01b", "a\x7fb", "a\rb"} {
		a := raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "+value+"\r\nContent-Length: 0\r\n\r\n")
		if a.status != 400 {
			t.Errorf("%q: status %d, want 400", value, a.status)
		}
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("upstream executed %d requests", n)
	}
}

func gzipped(t *testing.T, plain io.Reader) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestR24_BodiesOverTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	long := strings.Repeat("x", 1<<20+1)
	bomb := gzipped(t, zeros(8<<20))
	if len(bomb) > 1<<20 {
		t.Fatalf("the bomb has %d bytes, which the limit would catch anyway", len(bomb))
	}
	askTooMuch(t, "POST", g.url+"/", long, "Idempotency-Key", "long").wants(t, 413, refusal.BodyTooLarge)
	ask(t, "POST", g.url+"/", bomb, "Idempotency-Key", "bomb", "Content-Encoding", "gzip").wants(t, 413, refusal.BodyTooLarge)
	raw(t, g.Addr().String(), fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: chunked\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(long), long)).
		wants(t, 413, refusal.BodyTooLarge)
	// A length that is only claimed takes no memory, and nothing of the body is waited for.
	raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: claimed\r\nContent-Length: 9000000000000\r\n\r\n").
		wants(t, 413, refusal.BodyTooLarge)
	if n := len(u.requests()); n != 0 {
		t.Errorf("upstream executed %d requests", n)
	}
	fits := strings.Repeat("x", 1<<20)
	ask(t, "POST", g.url+"/", fits, "Idempotency-Key", "fits").wants(t, 201, "")
	ask(t, "POST", g.url+"/", "x", "Idempotency-Key", "long").wants(t, 201, "") // the refusal left nothing behind
}

// The gateway does not judge JSON: what it can't bring into canonical form counts byte by byte.
func TestR20_MalformedDeepAndHugeJSONArePassedOnAndReplayed(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for name, body := range map[string]string{
		"malformed":        `{"amount":`,
		"not UTF-8":        "{\"a\":\"\xff\"}",
		"duplicate names":  `{"a":1,"a":2}`,
		"deep arrays":      strings.Repeat("[", 200_000),
		"deep objects":     strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000),
		"huge":             `{"a":"` + strings.Repeat("x", 1<<20-100) + `"}`,
		"many members":     "[" + strings.Repeat("{},", 200_000) + "{}]",
		"a huge number":    strings.Repeat("9", 500_000),
		"nothing":          "",
		"a lone surrogate": `"\ud800"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			send := func(body string) answer {
				return ask(t, "POST", g.url+"/", body, "Content-Type", "application/json", "Idempotency-Key", "json-"+strings.ReplaceAll(name, " ", "-"))
			}
			send(body).wants(t, 201, "")
			again := send(body)
			again.wants(t, 201, "")
			if !again.replayed() {
				t.Error("the repeat is no replay")
			}
			send(body+" x").wants(t, 422, refusal.KeyReused)
		})
	}
}

func TestABrokenGzipBodyIsAnsweredClearly(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	whole := gzipped(t, strings.NewReader(`{"amount":1}`))
	for name, body := range map[string]string{"truncated": whole[:len(whole)-6], "no gzip": "plain text"} {
		a := ask(t, "POST", g.url+"/", body, "Idempotency-Key", strings.ReplaceAll(name, " ", "-"), "Content-Encoding", "gzip")
		if a.status != 201 && a.status != 400 {
			t.Errorf("%s: status %d %s", name, a.status, a.body)
		}
		again := ask(t, "POST", g.url+"/", body, "Idempotency-Key", strings.ReplaceAll(name, " ", "-"), "Content-Encoding", "gzip")
		if again.status != a.status || a.status == 201 && !again.replayed() {
			t.Errorf("%s: the repeat is %d, the first was %d", name, again.status, a.status)
		}
	}
}

func TestABodyThatDoesNotArriveInTimeIsRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	g.Gateway.bodyTime = 50 * time.Millisecond
	c := dial(t, g.Addr().String())
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 10\r\n\r\nhalf")
	readAnswer(t, bufio.NewReader(c)).wants(t, 400, refusal.RequestUnreadable)
	if n := len(u.requests()); n != 0 {
		t.Errorf("upstream executed %d requests", n)
	}
}

func TestTheTimeForTheBodyEndsWithTheBody(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	began, past := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-past
		created(w, r)
	})
	g := start(t, u.URL, func(c *Config) { c.Default.Policy.Wait = 10 * time.Second })
	g.Gateway.bodyTime = limit
	send := func() *bufio.Reader {
		c := dial(t, g.Addr().String())
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 4\r\n\r\nbody")
		return bufio.NewReader(c)
	}
	runs := send()
	<-began
	waits := send() // if its connection fails at the limit, it waits no longer
	time.AfterFunc(3*limit, func() { close(past) })
	readAnswer(t, runs).wants(t, 201, "")
	if a := readAnswer(t, waits); a.status != 201 || !a.replayed() {
		t.Errorf("the repeat that waits got %d %s", a.status, a.body)
	}
}

func TestHeadersOverTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	a := raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 80<<10)+"\r\n\r\n")
	if a.status != 431 || len(u.requests()) != 0 {
		t.Errorf("status %d, executed %d times", a.status, len(u.requests()))
	}
}
