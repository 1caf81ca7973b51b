package pgstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// A cutter passes connections on to a server, and cuts the first one on which a COMMIT, or another statement, comes
// after it was armed: its client learns nothing of what becomes of that.
type cutter struct {
	t      testing.TB
	target string
	armed  atomic.Pointer[cut]
	trips  atomic.Int64 // round trips of all connections: their clients have waited for the server so often
}

// A cut decides what becomes of a COMMIT whose client is gone. The server has executed what came before it.
type cut struct {
	statement string       // what is waited for in the place of a COMMIT
	batches   atomic.Int64 // if above 0: the batch of statements with that number is, whatever is in it

	ready  func()      // returns when the server has executed what came before the COMMIT; nil: the COMMIT is not held back
	commit bool        // it is passed on after that; else the server's connection is closed
	gone   chan string // gets a value when the server's connection is closed
}

// newCutter returns a proxy in front of the server of a URL, and the URL for its clients.
func newCutter(t testing.TB, target string) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := &cutter{t: t, target: u.Host}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(client)
		}
	}()
	u.Host = l.Addr().String()
	return c, u.String()
}

// cancelRequest is the version of the protocol of a connection that only cancels what another one does.
const cancelRequest = 80877102

func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	var deaf atomic.Bool // the client is to hear nothing more
	answered := make(chan bool)
	go func() {
		defer close(answered)
		b := make([]byte, 1<<16)
		for {
			n, err := server.Read(b)
			if err != nil {
				client.Close()
				return
			}
			if deaf.Load() {
				answered <- true
			} else if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	begins := false // the next message begins a batch
	for first := true; ; first = false {
		message, err := readMessage(client, first)
		if err != nil {
			return
		}
		if first && binary.BigEndian.Uint32(message[4:]) == cancelRequest {
			return // it would end what the server is to be held in
		}
		if !first && message[0] == 'S' {
			c.trips.Add(1)
		}
		if cut := c.armed.Load(); cut != nil && !first && cut.meets(message, begins) && c.armed.CompareAndSwap(cut, nil) {
			deaf.Store(true)
			rest := message
			if message[0] != 'Q' {
				rest = append(rest, readRest(client)...)
			}
			if cut.ready != nil {
				cut.ready()
				client.Close()
				time.Sleep(300 * time.Millisecond) // the guard asks meanwhile
			}
			if cut.ready == nil || cut.commit {
				server.Write(rest)
				<-answered
			}
			server.Close()
			close(cut.gone)
			return
		}
		begins = first || message[0] == 'S' || message[0] == 'Q'
		if _, err := server.Write(message); err != nil {
			return
		}
	}
}

// meets reports whether a message is the first of what is to be cut off.
func (c *cut) meets(message []byte, begins bool) bool {
	if c.batches.Load() > 0 {
		return begins && message[0] != 'X' && c.batches.Add(-1) == 0
	}
	return executes(message, cmp.Or(c.statement, commitSQL))
}

// executes reports whether a message is the first of those that execute a statement: an unnamed one, or the use of the
// one that was prepared.
func executes(message []byte, sql string) bool {
	switch message[0] {
	case 'P':
		return message[5] == 0 && bytes.Contains(message, []byte(sql+"\x00"))
	case 'B':
		return bytes.Contains(message, []byte(statementName(sql)+"\x00"))
	}
	return false
}

// readMessage reads one message of the protocol; the first one has no type.
func readMessage(r io.Reader, first bool) ([]byte, error) {
	head := make([]byte, 5)
	if first {
		head = head[:4]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	body := make([]byte, int(binary.BigEndian.Uint32(head[len(head)-4:]))-4)
	_, err := io.ReadFull(r, body)
	return append(head, body...), err
}

// readRest reads up to the Sync that ends a batch.
func readRest(r io.Reader) (rest []byte) {
	for {
		message, err := readMessage(r, false)
		if rest = append(rest, message...); err != nil || message[0] == 'S' {
			return rest
		}
	}
}
