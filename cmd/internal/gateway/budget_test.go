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

	"github.com/semelhq/semel"
)

func TestAttack05_R60_UnfinishedBodiesOfOneTakeNoRoomOfOthers(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Scope, c.Caps.MaxBodyMemory = Scope{header: "X-Account", set: true}, 5*semel.DefaultMaxRequestBody
	})
	send := func(account, key string) answer {
		return ask(t, "POST", g.url+"/", "{}", "X-Account", account, "Idempotency-Key", key)
	}
	var unfinished []net.Conn
	n := 0
	sends := func(account string) int {
		n++
		return send(account, "k"+strconv.Itoa(n)).status
	}
	eventually(t, "a refusal of the flooder", func() bool { // two bodies are its share; one that meets the request below is refused itself
		c := dial(t, g.Addr().String())
		unfinished = append(unfinished, c)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nX-Account: flooder\r\nIdempotency-Key: u%d\r\nContent-Length: %d\r\n\r\n%s", len(unfinished), semel.DefaultMaxRequestBody, strings.Repeat("x", 600<<10))
		return sends("flooder") == 503
	})
	send("flooder", "refused").wants(t, 503, semel.CodeStoreUnavailable)
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
	ask(t, "POST", g.url+"/report", "", "Idempotency-Key", "k").wants(t, 409, semel.CodeReplayUnavailable)
	if n := len(u.requests()); n != 1 {
		t.Errorf("executed %d times", n)
	}
}
