package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Attacks are what a Flood can be: claims that are given up, keys that are used once, bodies that don't end, answers
// that nobody reads, and all of these at once.
func Attacks() []string { return []string{"hangups", "keys", "bodies", "readers", "all"} }

const (
	floodSockets = 64 // at once, for hang-ups, and for keys
	slowBodySize = 1 << 20
	keptAnswer   = 8 << 20         // the largest that the gateway keeps
	refusedPause = time.Second     // on average, before a slow peer that was refused comes again
	sendPause    = time.Second     // between two bytes of a slow body
	notConnected = "not connected" // an outcome
)

// An attacker does what a Flood says.
type attacker struct {
	Flood
	address string

	mu       sync.Mutex
	outcomes map[string]int
}

func (a *attacker) note(attack, outcome string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcomes[attack+": "+outcome]++
}

// An attack goes on until it is through, or its context ends.
type attack struct {
	do   func(*attacker, context.Context)
	ends bool // by itself
}

func (f Flood) attacks() []attack {
	one := map[string]attack{
		"hangups": {(*attacker).hangUp, true},
		"keys":    {(*attacker).useKeys, true},
		"bodies":  {(*attacker).sendSlowly, false},
		"readers": {(*attacker).readNothing, false},
	}
	if f.Attack == "all" {
		return []attack{one["hangups"], one["keys"], one["bodies"], one["readers"]}
	}
	if only, ok := one[f.Attack]; ok {
		return []attack{only}
	}
	return nil
}

// attack makes the attacks at once. Those that don't end by themselves go on until the others have ended.
func (a *attacker) attack(ctx context.Context, attacks []attack) {
	keptUp, end := context.WithCancel(ctx)
	defer end()
	var ending, others sync.WaitGroup
	endless := false
	for _, one := range attacks {
		if one.ends {
			ending.Go(func() { one.do(a, ctx) })
		} else {
			endless = true
			others.Go(func() { one.do(a, keptUp) })
		}
	}
	if endless {
		select {
		case <-time.After(a.Duration):
		case <-ctx.Done():
		}
	}
	ending.Wait()
	end()
	others.Wait()
}

// paced calls do with 0 to n-1, at the rate, at most floodSockets at once.
func (a *attacker) paced(ctx context.Context, n int, do func(i int)) {
	numbers := make(chan int)
	var doing sync.WaitGroup
	for range floodSockets {
		doing.Go(func() {
			for i := range numbers {
				do(i)
			}
		})
	}
	began := time.Now()
	for i := 0; i < n && ctx.Err() == nil; i++ {
		if a.Rate > 0 {
			due := began.Add(time.Duration(float64(i) / float64(a.Rate) * float64(time.Second)))
			time.Sleep(time.Until(due))
		}
		numbers <- i
	}
	close(numbers)
	doing.Wait()
}

// hangUp writes whole requests and resets the connections. Each key is asked for three times.
func (a *attacker) hangUp(ctx context.Context) {
	a.paced(ctx, a.Hangups, func(i int) {
		a.exchange("hangups", "hangup-"+strconv.Itoa(i/3), func(net.Conn) string { return "hung up" })
	})
}

// served asks as hangUp does, and waits for the answers.
func (a *attacker) served(ctx context.Context) {
	a.paced(ctx, a.Hangups, func(i int) {
		a.exchange("served", "waited-"+strconv.Itoa(i/3), func(c net.Conn) string {
			answer, err := io.ReadAll(c)
			if err != nil {
				return "cut off"
			}
			status, _, _ := strings.Cut(string(answer), "\r\n")
			return status
		})
	})
}

func (a *attacker) exchange(name, key string, then func(net.Conn) string) {
	c, err := net.Dial("tcp", a.address)
	if err != nil {
		a.note(name, notConnected)
		return
	}
	if _, err := io.WriteString(c, a.head(key, 2, "Connection: close\r\n")+"{}"); err != nil {
		a.note(name, "cut off")
	} else {
		a.note(name, then(c))
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // then it is closed as it can be
	}
	c.Close()
}

func (a *attacker) head(key string, length int, more string) string {
	return fmt.Sprintf("POST /payments HTTP/1.1\r\nHost: %s\r\nX-Account: %s\r\nIdempotency-Key: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", a.address, floodAccount, key, length, more)
}

// useKeys asks with one key after another, each once.
func (a *attacker) useKeys(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: floodSockets, MaxConnsPerHost: floodSockets}}
	defer client.CloseIdleConnections()
	a.paced(ctx, a.Keys, func(i int) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.address+"/payments", strings.NewReader("{}"))
		if err != nil {
			a.note("keys", err.Error())
			return
		}
		r.Header["idempotency-key"] = []string{"key-" + strconv.Itoa(i)} // as in load.ask
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Account", floodAccount)
		answer, err := client.Do(r)
		if err != nil {
			a.note("keys", "cut off")
			return
		}
		io.Copy(io.Discard, answer.Body) //nolint:errcheck // the status says enough
		answer.Body.Close()
		a.note("keys", strings.TrimSpace(answer.Status+" "+answer.Header.Get("Idempotency-Code")))
	})
}

// sendSlowly keeps up connections on which half a body has come, and then a byte a second.
func (a *attacker) sendSlowly(ctx context.Context) {
	half := `{"note":"` + strings.Repeat("x", slowBodySize/2)
	a.keepUp(ctx, "bodies", func(c net.Conn, n int) {
		io.WriteString(c, a.head("body-"+strconv.Itoa(n), slowBodySize, "")+half) //nolint:errcheck // what was answered shows below
		answered := make(chan string, 1)
		go func() { answered <- status(c) }()
		for {
			select {
			case what := <-answered:
				if ctx.Err() != nil {
					what = "kept up to the end"
				}
				a.note("bodies", what)
				return
			case <-time.After(sendPause):
				io.WriteString(c, "x") //nolint:errcheck // as above
			}
		}
	})
}

// readNothing keeps up connections on which large answers are asked for, of which nothing is read but the first line:
// by turns one that is kept, one that is too large for that, and a replay.
func (a *attacker) readNothing(ctx context.Context) {
	a.keepUp(ctx, "readers", func(c net.Conn, n int) {
		key, size := n, keptAnswer
		switch n % 3 {
		case 1:
			size += 1 << 20
		case 2:
			key = n - n%30 // fewer repeats than are counted as too many attempts
		}
		c.(*net.TCPConn).SetReadBuffer(4 << 10) //nolint:errcheck // then the system takes more of the answer
		if _, err := io.WriteString(c, a.head("reader-"+strconv.Itoa(key), 2, "X-Size: "+strconv.Itoa(size)+"\r\n")+"{}"); err != nil {
			a.note("readers", "cut off")
			return
		}
		what := status(c)
		if ctx.Err() == nil && strings.HasPrefix(what, "2") {
			select {
			case <-ctx.Done():
			case <-time.After(readerLife):
			}
		}
		a.note("readers", what)
	})
}

// readerLife is how long a reader that reads nothing is kept up: the gateway gives it up after a minute, which does not
// show without reading.
const readerLife = 70 * time.Second

// keepUp keeps up so many connections as there are peers, each until use returns. When the context ends reading from
// them ends, too.
func (a *attacker) keepUp(ctx context.Context, name string, use func(c net.Conn, n int)) {
	var peers sync.WaitGroup
	for i := range a.Peers {
		peers.Go(func() {
			for n := i; ctx.Err() == nil; n += a.Peers {
				c, err := net.Dial("tcp", a.address)
				if err != nil {
					a.note(name, notConnected)
				} else {
					stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) }) //nolint:errcheck // then it is closed
					use(c, n)
					stop()
					c.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(refusedPause/2 + rand.N(refusedPause)): // not all of them in one moment
				}
			}
		})
	}
	peers.Wait()
}

// status waits for the first bytes of an answer and returns its status. It reads no more than that.
func status(c net.Conn) string {
	line := make([]byte, len("HTTP/1.1 200"))
	_, err := io.ReadFull(c, line)
	switch {
	case err == nil:
		return string(line[len("HTTP/1.1 "):])
	case errors.Is(err, io.EOF):
		return "closed"
	}
	return "cut off"
}
