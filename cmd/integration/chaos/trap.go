package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
)

// traps are the points of this process. At most one is set at a time.
type traps struct {
	set atomic.Pointer[trap]
	out io.Writer // tells the run which one has fired
}

type trap struct {
	point Point
	left  atomic.Int64
}

// arm sets the trap that the n-th passing of a point springs.
func (t *traps) arm(p Point, n int64) {
	set := &trap{point: p}
	set.left.Store(n)
	t.set.Store(set)
}

// due reports whether this passing of the point is the one; then the caller has to die.
func (t *traps) due(p Point) bool {
	set := t.set.Load()
	return set != nil && set.point == p && set.left.Add(-1) == 0
}

// die kills this process, as the kernel kills: nothing is flushed, nothing deferred runs. It does not return.
func (t *traps) die(p Point) {
	fmt.Fprintf(t.out, "fired %s %d\n", p, time.Now().UnixMicro())
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("chaos: this process can't kill itself: %v", err))
	}
	select {} // the signal is under way
}

func (t *traps) pass(p Point) {
	if t.due(p) {
		t.die(p)
	}
}

// A trappedStore is a store between whose verbs on operations and their caller this process can die.
type trappedStore struct {
	driver.Store
	traps *traps
}

func (s trappedStore) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	rec, owned, err := s.Store.Claim(ctx, id, c)
	if err == nil && owned && !id.Reserved() {
		s.traps.pass(AfterClaim)
	}
	return rec, owned, err
}

func (s trappedStore) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if by.Above || id.Reserved() {
		return s.Store.Settle(ctx, id, by, o)
	}
	s.traps.pass(BeforeSettle)
	rec, owned, err := s.Store.Settle(ctx, id, by, o)
	if err == nil && owned {
		s.traps.pass(AfterSettle)
	}
	return rec, owned, err
}

// A trappedListener accepts connections on which this process can die while it answers.
type trappedListener struct {
	net.Listener
	traps *traps
}

func (l trappedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &trappedConn{Conn: c, traps: l.traps}, nil
}

// A trappedConn takes the first write after a read for the beginning of an answer.
type trappedConn struct {
	net.Conn
	traps   *traps
	asked   atomic.Bool
	streams bool // the present answer; of who writes
}

func (c *trappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.asked.Store(true)
	}
	return n, err
}

func (c *trappedConn) Write(p []byte) (int, error) {
	const statusLine = len("HTTP/1.1 200 ")
	if c.asked.Swap(false) {
		c.streams = bytes.Contains(p, []byte("text/event-stream"))
		c.traps.pass(BeforeFirstByte)
		if c.traps.due(MidAnswer) {
			c.Conn.Write(p[:min(statusLine, len(p))]) //nolint:errcheck // this process ends with it, received or not
			c.traps.die(MidAnswer)
		}
	}
	n, err := c.Conn.Write(p)
	if c.streams && !bytes.HasSuffix(p, lastChunk) { // which a stream gets once its outcome is durable
		c.traps.pass(MidStream)
	}
	return n, err
}

var lastChunk = []byte("0\r\n\r\n")

// CloseWrite lets a relay pass on that one side has ended.
func (c *trappedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }
