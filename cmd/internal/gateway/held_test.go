package gateway

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/refusal"
)

// Each of these has two readings, or none. What follows it on its connection must not become a request.
func TestHeld_R62_WhatHasNoOneReadingIsRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.Scope = Scope{header: "X-Account", set: true} })
	const (
		smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
		sized    = "Content-Length: 2\r\n"
		chunked  = "Transfer-Encoding: chunked\r\n"
	)
	for _, c := range []struct{ name, fields, body string }{
		{"a scope parted by a bare CR", "X-A: b\rX-Account: victim\r\n" + sized, "ok"},
		{"NUL in a field", "X-A: a\x00b\r\n" + sized, "ok"},
		{"a space before a colon", "X-Account : victim\r\n" + sized, "ok"},
		{"a name that is none", "X(A): b\r\n" + sized, "ok"},
		{"no name", ": b\r\n" + sized, "ok"},
		{"no colon", "X-A\r\n" + sized, "ok"},
		{"two lengths of one kind", sized + "Content-Length: 3\r\n", "ok"},
		{"a list of lengths", "Content-Length: 2, 2\r\n", "ok"},
		{"a list of two lengths", "Content-Length: 2, 3\r\n", "ok"},
		{"a length with a sign", "Content-Length: +2\r\n", "ok"},
		{"a negative length", "Content-Length: -2\r\n", "ok"},
		{"a hexadecimal length", "Content-Length: 0x2\r\n", "ok"},
		{"a length with a fraction", "Content-Length: 2.0\r\n", "ok"},
		{"a length beyond 63 bits", "Content-Length: 18446744073709551618\r\n", "ok"},
		{"a length in two words", "Content-Length: 2 2\r\n", "ok"},
		{"an unknown coding", "Transfer-Encoding: cow\r\n", "2\r\nok\r\n0\r\n\r\n"},
		{"two codings", "Transfer-Encoding: gzip, chunked\r\n", "2\r\nok\r\n0\r\n\r\n"},
		{"chunked twice", chunked + chunked, "2\r\nok\r\n0\r\n\r\n"},
		{"identity", "Transfer-Encoding: identity\r\n", "2\r\nok\r\n0\r\n\r\n"},
		{"a coding behind a vertical tab", "Transfer-Encoding: \x0bchunked\r\n", "2\r\nok\r\n0\r\n\r\n"},
		{"a chunk with 0x", chunked, "0x2\r\nok\r\n0\r\n\r\n"},
		{"a chunk with a sign", chunked, "+2\r\nok\r\n0\r\n\r\n"},
		{"a negative chunk", chunked, "-2\r\nok\r\n0\r\n\r\n"},
		{"a chunk beyond 64 bits", chunked, "10000000000000002\r\nok\r\n0\r\n\r\n"},
		{"a chunk without a size", chunked, "\r\nok\r\n0\r\n\r\n"},
		{"a chunk that is longer than its size", chunked, "1\r\nok\r\n0\r\n\r\n"},
		{"a chunk's size behind a bare LF", chunked, "2\nok\n0\n\n"},
		{"a chunk's extension with a bare LF", chunked, "2;x\nok\r\n0\r\n\r\n"},
		{"extensions without end", chunked, strings.Repeat("1;"+strings.Repeat("x", 4000)+"\r\no\r\n", 50) + "0\r\n\r\n"},
		{"trailers without end", chunked, "2\r\nok\r\n0\r\n" + strings.Repeat("X-T: 1\r\n", 20_000) + "\r\n"},
	} {
		for _, key := range []string{"", "Idempotency-Key: k\r\n"} {
			conn := dial(t, g.Addr().String())
			go io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nX-Account: me\r\n"+key+c.fields+"\r\n"+c.body+smuggled)
			in := bufio.NewReader(conn)
			if a := readAnswer(t, in); a.status < 400 {
				t.Errorf("%s, %q: status %d", c.name, key, a.status)
			}
			if rest, _ := io.ReadAll(in); len(rest) > 0 {
				t.Errorf("%s, %q: the connection went on with %.60q", c.name, key, rest)
			}
		}
	}
	for _, fields := range []string{"X-Account: victim\r\n", "X-A: b\nX-Account: victim\r\n"} { // a bare LF ends a line (RFC 9112, section 2.2)
		raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\nX-Account: me\r\nIdempotency-Key: k\r\n"+fields+sized+"\r\nok").wants(t, 400, refusal.ScopeInvalid)
	}
	if all := u.requests(); len(all) > 0 {
		t.Errorf("%d requests have reached the service, such as %s %s", len(all), all[0].Method, all[0].URL)
	}
}

// poisoning answers each request on a connection with one answer and the same bytes behind it.
func poisoning(t *testing.T, reply, poison string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body) //nolint:errcheck // the next read fails too
					io.WriteString(c, reply+poison)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func TestHeld_NoAnswerOfAnotherRequestIsGiven(t *testing.T) {
	t.Parallel()
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	g := start(t, poisoning(t, "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\npaid", evil+evil))
	for i := range 3 {
		for _, key := range []string{"", "k" + strconv.Itoa(i)} {
			if a := ask(t, "POST", g.url+"/", "{}", keyed(key)...); a.body == "evil" || a.status == 200 {
				t.Fatalf("request %d, key %q: got what nobody asked for: %d %s", i, key, a.status, a.body)
			}
		}
	}
}

func TestHeld_AnUpstreamsHeadersStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]string{
		"a bare CR":              "X-A: b\rSet-Cookie: forged=1\r\n",
		"NUL":                    "X-A: b\x00c\r\n",
		"a space before a colon": "Set-Cookie : forged=1\r\n",
		"two lengths":            "Content-Length: 9\r\n",
		"a length with a sign":   "Content-Length: +4\r\n",
		"a line that was folded": "X-A: b\r\n Set-Cookie: forged=1\r\n",
		"markers of a gateway":   "Idempotent-Replayed: forged\r\nIdempotency-Expires: forged\r\nIdempotency-Status: forged\r\nIdempotency-Outcome: keep\r\n",
	} {
		g := start(t, poisoning(t, "HTTP/1.1 201 Created\r\n"+fields+"Content-Length: 4\r\n\r\npaid", ""))
		first := ask(t, "POST", g.url+"/", "{}", "Idempotency-Key", "k", "Idempotent-Replayed", "true")
		again := ask(t, "POST", g.url+"/", "{}", "Idempotency-Key", "k")
		for _, a := range []answer{first, again} {
			if a.header.Get("Set-Cookie") != "" || a.header.Get("Idempotency-Outcome") != "" {
				t.Errorf("%s: the client gets %d %q", name, a.status, a.header)
			}
			for _, values := range a.header {
				if strings.ContainsAny(strings.Join(values, ""), "\r\n\x00") {
					t.Errorf("%s: %q", name, values)
				}
			}
		}
		if marks := again.header["Idempotent-Replayed"]; again.status == 201 && (len(marks) != 1 || marks[0] != "true") || first.replayed() {
			t.Errorf("%s: marked %q, and the first answer %t", name, marks, first.replayed())
		}
		if strings.Contains(fmt.Sprint(again.header), "[forged]") {
			t.Errorf("%s: the replay has %q", name, again.header)
		}
	}
}

func TestHeld_R10_AnotherTenantGetsNothing(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "of "+r.Header.Get("X-Account"))
	})
	g := start(t, u.URL, func(c *Config) {
		c.Scope, c.Operations = Scope{header: "X-Account", set: true}, "/operations"
	})
	ask(t, "POST", g.url+"/payments", "{}", "Idempotency-Key", "k", "X-Account", "acme").wants(t, 201, "")
	id := u.requests()[0].Header.Get("Idempotency-Operation")
	if a := ask(t, "GET", g.url+"/operations/"+id+"/result", "", "X-Account", "acme"); a.body != "of acme" {
		t.Fatalf("its own: %d %s", a.status, a.body)
	}
	for _, c := range []struct{ line, fields string }{
		{"GET /operations", "X-Account: mallory\r\n"},
		{"GET /operations", ""},
		{"GET /operations/" + id, "X-Account: mallory\r\n"},
		{"GET /operations/" + id + "/result", "X-Account: mallory\r\n"},
		{"GET /operations/" + id + "/result", ""},
		{"GET /operations/" + id + "/../" + id + "/result", "X-Account: mallory\r\n"},
		{"GET /operations/%2e%2e/operations/" + id + "/result", "X-Account: mallory\r\n"},
		{"GET /x/../operations/" + id + "/result", "X-Account: mallory\r\n"},
		{"GET /operations/" + id + "%2fresult", "X-Account: mallory\r\n"},
		{"GET /operations/" + id + "%00/result", "X-Account: mallory\r\n"},
		{"GET /operations//" + id + "/result", "X-Account: mallory\r\n"},
		{"POST /payments", "X-Account: mallory\r\n"},
		{"POST /payments", "X-Account: mallory\r\nX-Account: acme\r\n"},
		{"POST /payments", "X-Account: acme,mallory\r\n"},
		{"POST /payments", "X-Account: ACME\r\n"},
		{"POST /payments", "X-Account: acme\x00\r\n"},
		{"POST /payments", "X-Account: \"acme\"\r\n"},
		{"POST /payments", "X-Account: mallory\r\nX_Account: acme\r\n"},
		{"POST /payments", "X-Account: mallory\r\nX-Forwarded-For: acme\r\nForwarded: for=acme\r\n"},
		{"POST /payments", "X-Account: mallory\r\nConnection: X-Account\r\n"},
		{"POST /payments", "Connection: X-Account\r\n"},
		{"POST /payments", ""},
	} {
		a := raw(t, g.Addr().String(), c.line+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"+c.fields+"Content-Length: 2\r\n\r\n{}")
		if a.body == "of acme" || strings.Contains(a.body, "succeeded") {
			t.Errorf("%s %q: %d %s", c.line, c.fields, a.status, a.body)
		}
	}
	n := 0
	for _, r := range u.requests() {
		if r.Method == http.MethodPost && r.Header.Get("X-Account") == "acme" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("acme has paid %d times", n)
	}
}

// What has more members or parts than can be looked at counts by its bytes.
func TestHeld_R20_BodiesOfManyPartsTakeBoundedTime(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.Default.Policy.MaxRequestBody = 8 << 20 })
	members := make([]string, 80_000)
	for i := range members {
		members[i] = fmt.Sprintf(`"m%d":%d`, i*7919%80_000, i)
	}
	part := "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n"
	for name, c := range map[string]struct{ media, body string }{
		"members":            {"application/json", "{" + strings.Join(members, ",") + "}"},
		"one member often":   {"application/json", "{" + strings.Repeat(`"a":1,`, 80_000) + `"a":1}`},
		"parts":              {"multipart/form-data; boundary=b", strings.Repeat(part, 110_000) + "--b--\r\n"},
		"fields of a form":   {"application/x-www-form-urlencoded", strings.Repeat("a=1&", 110_000)},
		"headers of a part":  {"multipart/form-data; boundary=b", "--b\r\n" + strings.Repeat("X-A: b\r\n", 110_000) + "\r\n1\r\n--b--\r\n"},
		"boundary in itself": {"multipart/form-data; boundary=b", strings.Repeat("--b", 500_000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			send := func(body string) answer {
				return ask(t, "POST", g.url+"/", body, "Content-Type", c.media, "Idempotency-Key", strings.ReplaceAll(name, " ", "-"))
			}
			send(c.body).wants(t, 201, "")
			if a := send(c.body); a.status != 201 || !a.replayed() {
				t.Errorf("the repeat: %d %s", a.status, a.body)
			}
			send("x"+c.body).wants(t, 422, refusal.KeyReused)
		})
	}
}

func TestHeld_LinesOfTheLogAreTheGatewaysOwn(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	text := &logBuffer{}
	g := start(t, u.URL, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Scope = Scope{header: "X-Account", set: true}
	})
	const forged = "level=ERROR msg=forged"
	for _, request := range []string{
		"POST /a%0a" + strings.ReplaceAll(forged, " ", "%20") + " HTTP/1.1\r\nX-Account: me\r\nIdempotency-Key: k1\r\n",
		"POST /a%0d%0atime=x%20" + strings.ReplaceAll(forged, " ", "%20") + " HTTP/1.1\r\nX-Account: me\r\n",
		"POST / HTTP/1.1\r\nX-Account: " + forged + "\r\nIdempotency-Key: k2\r\n",
		"POST / HTTP/1.1\r\nX-Account: a\n" + forged + "\r\nIdempotency-Key: k2\r\n",
		"POST / HTTP/1.1\r\nX-Account: me\r\nIdempotency-Key: a\" " + forged + "\r\n",
		"POST / HTTP/1.1\r\nX-Account: me\r\nIdempotency-Key: k3\r\nX-Correlation-Id: \" " + forged + "\r\n",
		"POST / HTTP/1.1\r\nX-Account: me\r\nIdempotency-Key: k4\r\nX-Correlation-Id: \x1b[2J" + forged + "\r\n",
		"POST / HTTP/1.1\r\nX-Account: me\r\nIdempotency-Key: k5\r\nX-Correlation-Id: \xe2\x80\xa8" + forged + "\r\n",
		"POST / HTTP/1.1\r\nX-Account: me\r\nIdempotency-Key: k6\r\nTransfer-Encoding: " + forged + "\r\n",
		forged + " HTTP/1.1\r\n",
	} {
		raw(t, g.Addr().String(), request+"Host: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "time=20") || strings.Contains(line, " level=ERROR msg=forged\n") && strings.Count(line, `"`)%2 == 1 || strings.Contains(line, "\x1b") || strings.Contains(line, "\u2028") {
			t.Errorf("a line that somebody else has written: %q", line)
		}
	}
	if strings.Count(text.String(), "\n") < 5 {
		t.Errorf("nothing was logged: %s", text)
	}
}
