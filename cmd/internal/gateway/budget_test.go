package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/refusal"
)

func TestAttack05_R60_UnfinishedBodiesOfOneTakeNoRoomOfOthers(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Scope, c.Caps.MaxBodyMemory = Scope{header: "X-Account", set: true}, 5*defaults.MaxRequestBody
	})
	large := `"` + strings.Repeat("x", 600<<10) + `"`
	send := func(account, key string) answer {
		return ask(t, "POST", g.url+"/", large, "X-Account", account, "Idempotency-Key", key)
	}
	var unfinished []net.Conn
	n := 0
	sends := func(account string) int {
		n++
		return send(account, "k"+strconv.Itoa(n)).status
	}
	eventually(t, "a refusal of the flooder", func() bool { // a few bodies are its share; one that meets the request below is refused itself
		c := dial(t, g.Addr().String())
		unfinished = append(unfinished, c)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nX-Account: flooder\r\nIdempotency-Key: u%d\r\nContent-Length: %d\r\n\r\n%s", len(unfinished), defaults.MaxRequestBody, strings.Repeat("x", 600<<10))
		return sends("flooder") == 503
	})
	send("flooder", "refused").wants(t, 503, refusal.StoreUnavailable)
	send("other", "k").wants(t, 201, "")
	for _, c := range unfinished {
		c.Close()
	}
	eventually(t, "room for the flooder", func() bool { return sends("flooder") == 201 })
	send("flooder", "refused").wants(t, 201, "")
}

func TestAttack05_AnAnswerForWhichThereIsNoRoomGoesOutAsItIsWritten(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	goOn := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, size))
		w.(http.Flusher).Flush()
		<-goOn
		w.Write(make([]byte, size))
	})
	g := start(t, u.URL, func(c *Config) { c.Caps.MaxTempSpace, c.TempDir = 1<<20, t.TempDir() })
	c := dial(t, g.Addr().String())
	io.WriteString(c, "POST /report HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	close(goOn) // the first half is there before the second
	if n, err := io.Copy(io.Discard, res.Body); n != 2*size || err != nil {
		t.Errorf("the client got %d bytes, %v", n, err)
	}
	done(t, g, u)
	ask(t, "POST", g.url+"/report", "", "Idempotency-Key", "k").wants(t, 409, refusal.ReplayUnavailable)
	if n := len(u.requests()); n != 1 {
		t.Errorf("executed %d times", n)
	}
}

// Readers that never read hold no more of memory than their principal's share: their replays are refused, what they run
// is sent from files and not kept, and others notice nothing.
func TestAttack05_R60_UnreadAnswersOfOneTakeNoRoomOfOthers(t *testing.T) {
	t.Parallel()
	const size = 12 << 20 // more than the system takes off a writer's hands
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		part := make([]byte, 64<<10)
		for range size / len(part) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	g := start(t, u.URL, func(c *Config) {
		c.Scope, c.TempDir = Scope{header: "X-Account", set: true}, t.TempDir()
		c.Caps.MaxBodyMemory, c.Default.Policy.MaxResponseBody = 5*size, size // two answers are one's share
	})
	send := func(account, key string) answer {
		return ask(t, "POST", g.url+"/", "{}", "X-Account", account, "Idempotency-Key", key)
	}
	whole := func(a answer, replayed bool) {
		t.Helper()
		if a.status != 201 || len(a.body) != size || a.replayed() != replayed {
			t.Errorf("answered %d, %d bytes, replayed %t", a.status, len(a.body), a.replayed())
		}
	}
	var unread []net.Conn
	asks := func(key string) {
		c := dial(t, g.Addr().String())
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		unread = append(unread, c)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nX-Account: flooder\r\nIdempotency-Key: %s\r\nContent-Length: 2\r\n\r\n{}", key)
	}
	held := func() float64 { return metric(t, g, "idempotency_body_memory_bytes") }
	whole(send("flooder", "first"), false)
	eventually(t, "the first is given back", func() bool { return held() == 0 })

	for range 2 {
		asks("first")
	}
	eventually(t, "two replays are held", func() bool { return held() >= 2*size })
	send("flooder", "first").wants(t, 503, refusal.StoreUnavailable)
	whole(send("flooder", "second"), false) // it is run, and sent from a file
	send("flooder", "second").wants(t, 409, refusal.ReplayUnavailable)
	for range 10 {
		asks("first")
	}
	whole(send("other", "k"), false)
	whole(send("other", "k"), true)
	if limit := metric(t, g, "idempotency_body_memory_limit_bytes"); limit != 5*size || held() > 2.5*size {
		t.Errorf("%v bytes are held, of %v", held(), limit)
	}
	for _, c := range unread {
		c.Close()
	}
	eventually(t, "room for the flooder", func() bool { return held() == 0 })
	unread = nil
	asks("third")
	asks("fourth")
	eventually(t, "two answers are held", func() bool { return held() >= 2*size })
	send("flooder", "first").wants(t, 503, refusal.StoreUnavailable)
	for _, c := range unread {
		c.Close()
	}
	eventually(t, "all is given back", func() bool { return held() == 0 && metric(t, g, "idempotency_temp_space_bytes") == 0 })
	whole(send("flooder", "first"), true)
	whole(send("flooder", "third"), true)
	if n := len(u.requests()); n != 5 {
		t.Errorf("executed %d times", n)
	}
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, g *running, name string) float64 {
	t.Helper()
	_, rest, _ := strings.Cut(ask(t, "GET", g.admin+"/metrics", "").body, "\n"+name+" ")
	text, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}
