package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// impatient gives clients up as soon as they stand still.
func impatient(c *Config) { c.IdleTimeout, c.TunnelIdle = 50*time.Millisecond, 50*time.Millisecond }

// keyed is the header of a key, none for none.
func keyed(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Idempotency-Key", key}
}

// left waits until the gateway has no connection of a client's any more.
func (r *running) left(t *testing.T) {
	t.Helper()
	eventually(t, "the end of all connections", func() bool {
		l := r.metrics.connections.Load()
		return l != nil && l.open() == 0
	})
}

func TestAttack05_ABodyThatNeverComesIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{
		"with a key":               "POST /payments HTTP/1.1\r\nIdempotency-Key: k\r\n",
		"without a key":            "POST /payments HTTP/1.1\r\n",
		"of a method that is none": "connect /payments HTTP/1.1\r\n",
		"of another target":        "POST /operations/x HTTP/1.1\r\n",
	} {
		for _, sent := range []string{"", "half "} {
			t.Run(name+" "+sent, func(t *testing.T) {
				t.Parallel()
				u := newUpstream(t, created)
				g := start(t, u.URL, impatient, func(c *Config) { c.Operations = "/operations" })
				c := dial(t, g.Addr().String())
				io.WriteString(c, header+"Host: a\r\nContent-Length: 10\r\n\r\n"+sent)
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the connection was kept")
				}
				g.left(t)
				if n := len(u.requests()); n != 0 {
					t.Errorf("executed %d times", n)
				}
			})
		}
	}
}

func TestAttack05_ABodyThatNeverComesOverHTTP2IsGivenUp(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		u := newUpstream(t, created)
		g := start(t, u.URL, impatient)
		in, out := io.Pipe()
		defer out.Close()
		go io.WriteString(out, "half")
		res, err := trySend(t, client(t, nil, h2c), "POST", g.url+"/", in, keyed(key)...)
		if err == nil {
			if a := read(t, res); a.status < 400 {
				t.Errorf("key %q: status %d", key, a.status)
			}
		}
		if n := len(u.requests()); n != 0 {
			t.Errorf("key %q: executed %d times", key, n)
		}
	}
}

// tooMuch is more than lies between a client that does not read and the gateway.
const tooMuch = 64 << 20

func TestAttack05_AClientThatDoesNotReadIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "Idempotency-Key: k\r\n"} {
		t.Run(strconv.Quote(key), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				piece := make([]byte, 1<<20)
				for sent := 0; sent < tooMuch; sent += len(piece) {
					if _, err := w.Write(piece); err != nil {
						return
					}
				}
			})
			g := start(t, u.URL, impatient)
			c := dial(t, g.Addr().String())
			io.WriteString(c, "POST /report HTTP/1.1\r\nHost: a\r\n"+key+"Content-Length: 0\r\n\r\n")
			eventually(t, "the request", func() bool { return len(u.requests()) == 1 })
			g.left(t)
		})
	}
}

func TestAttack05_AStreamThatIsNotReadIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		t.Run(strconv.Quote(key), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, tooMuch)) })
			g := start(t, u.URL, impatient)
			res := send(t, client(t, nil, h2c), "POST", g.url+"/report", nil, keyed(key)...)
			defer res.Body.Close()
			if err := g.stop(); err != nil { // waits for the request
				t.Error(err)
			}
			if n, err := io.Copy(io.Discard, res.Body); err == nil {
				t.Errorf("the client got all %d bytes", n)
			}
		})
	}
}

// Whoever waits for the service, or between two requests, keeps the connection.
func TestAttack05_ALongRunAndAKeptConnectionAreNotCut(t *testing.T) {
	t.Parallel()
	const idle = 1500 * time.Millisecond // longer than a busy machine keeps a body waiting
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/short" {
			if r.URL.Path == "/stream" {
				io.WriteString(w, "begun, ")
				w.(http.Flusher).Flush()
			}
			select {
			case <-time.After(idle + idle/4):
			case <-r.Context().Done():
			}
		}
		created(w, r)
	})
	g := start(t, u.URL, func(c *Config) { c.IdleTimeout = idle })
	c := dial(t, g.Addr().String())
	in := bufio.NewReader(c)
	for _, request := range []string{
		"POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
		"POST /long HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}",
		"GET /long HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /short HTTP/1.1\r\nHost: a\r\nIdempotency-Key: l\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
	} {
		io.WriteString(c, request)
		a := readAnswer(t, in)
		if a.status == http.StatusContinue {
			a = readAnswer(t, in)
		}
		a.wants(t, 201, "")
	}
	two := client(t, nil, h2c)
	for _, key := range []string{"", "m"} {
		read(t, send(t, two, "POST", g.url+"/long", strings.NewReader("{}"), keyed(key)...)).wants(t, 201, "")
	}
	if a := read(t, send(t, two, "POST", g.url+"/stream", strings.NewReader("{}"))); a.body != `begun, {"id":1}` {
		t.Errorf("of a stream the client got %q", a.body)
	}
}

func TestAttack05_ConnectionsWithoutARequestMakeRoom(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.MaxConnections = 3 })
	for i := range 10 {
		c := dial(t, g.Addr().String())
		io.WriteString(c, "POST /payments HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k"+strconv.Itoa(i)+"\r\nContent-Length: 0\r\n\r\n")
		readAnswer(t, bufio.NewReader(c)).wants(t, 201, "") // and it stays open
	}
	if n := g.metrics.connections.Load().open(); n > 3 {
		t.Errorf("%d connections, want 3 at most", n)
	}
}

func TestAttack05_WhereAllConnectionsAreTakenAdministrationIsNot(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		created(w, r)
	})
	g := start(t, u.URL, func(c *Config) { c.MaxConnections = 3 })
	answers := make(chan answer)
	for i := range 5 {
		go func() {
			a, err := tryAsk("POST", g.url+"/payments", "", "Idempotency-Key", "k"+strconv.Itoa(i))
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	eventually(t, "the log of it", func() bool { return strings.Contains(g.log.String(), "all connections for clients are taken") })
	eventually(t, "three requests", func() bool { return len(u.requests()) == 3 })
	ask(t, "GET", g.admin+"/healthz", "").wants(t, 200, "")
	if a := ask(t, "GET", g.admin+"/metrics", ""); !strings.Contains(a.body, "\nidempotency_connections 3\n") {
		t.Error("the metrics do not tell of 3 connections")
	}
	close(release)
	for range 5 {
		a := <-answers
		a.wants(t, 201, "")
	}
}

func TestAttack05_AnUpgradedConnectionOnWhichNothingPassesEnds(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(io.Discard, c) //nolint:errcheck // it ends when the gateway ends it
	})
	g := start(t, u.URL, impatient)
	c := dial(t, g.Addr().String())
	io.WriteString(c, "GET /live HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(c)
	readAnswer(t, in).wants(t, 101, "")
	if _, err := io.Copy(io.Discard, in); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection was kept")
	}
	g.left(t)
}

// piped returns a connection as a clientListener gives it, and its far end.
func piped(t *testing.T) (*clientConn, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	l := newClientListener(nil, &Config{IdleTimeout: time.Minute, TunnelIdle: time.Minute, MaxConnections: 1}, nil)
	l.slots <- struct{}{}
	c := &clientConn{Conn: near, l: l}
	t.Cleanup(func() {
		c.Close()
		far.Close()
	})
	return c, far
}

func TestAttack05_AnUpgradedConnectionLivesByWhatPassesEitherWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, far := piped(t)
		c.l.changed(c, http.StateHijacked)
		go io.Copy(io.Discard, far) //nolint:errcheck // it ends with the test
		ended := make(chan time.Duration)
		began := time.Now()
		go func() {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read: %v", err)
			}
			ended <- time.Since(began)
		}()
		for range 3 {
			time.Sleep(50 * time.Second)
			io.WriteString(c, "x")
		}
		if lived := <-ended; lived != 210*time.Second {
			t.Errorf("it lived for %v", lived)
		}
	})
}

func TestAttack05_EachPieceOfAnAnswerHasItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, far := piped(t)
		sent := make(chan error)
		go func() {
			_, err := c.Write(make([]byte, 3*writePiece+1))
			sent <- err
		}()
		for range 3 {
			time.Sleep(50 * time.Second)
			if _, err := io.ReadFull(far, make([]byte, writePiece)); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-sent; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the last piece: %v", err)
		}
		if err := c.SetWriteDeadline(time.Unix(1, 0)); err != nil { // as one breaks off an answer
			t.Fatal(err)
		}
		go io.Copy(io.Discard, far) //nolint:errcheck // it ends with the test
		if _, err := io.WriteString(c, "x"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after a deadline that somebody set: %v", err)
		}
	})
}

func TestAttack05_ConnectionsLeaveOpenFilesForTheRest(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]int{0: DefaultMaxConnections, 64: 16, 1024: 192, 1 << 20: 1<<18 - 64, 1<<64 - 1: 1<<18 - 64} {
		if got := enough(files); got != want {
			t.Errorf("with %d files: %d, want %d", files, got, want)
		}
	}
}
