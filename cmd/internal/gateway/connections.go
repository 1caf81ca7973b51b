package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A clientListener accepts the connections of clients, at most so many at once. Where all are taken, one on which no
// request is under way is closed for the next client; where each has one, the next client waits.
type clientListener struct {
	net.Listener
	idle   time.Duration // in which a client must take a piece of what is sent to it
	tunnel time.Duration // after which a connection that was upgraded ends, if nothing passes either way
	full   func()        // is told of each client that finds all connections taken

	slots  chan struct{} // one for each connection that is open
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	resting map[*clientConn]bool // those that wait for their next request
	wanted  bool                 // a client waits for a connection
}

func newClientListener(l net.Listener, c *Config, full func()) *clientListener {
	return &clientListener{
		Listener: l, idle: c.IdleTimeout, tunnel: c.TunnelIdle, full: full,
		slots: make(chan struct{}, c.MaxConnections), closed: make(chan struct{}), resting: map[*clientConn]bool{},
	}
}

func (l *clientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.slots <- struct{}{}:
	default:
		l.full()
		l.want()
		select {
		case l.slots <- struct{}{}:
		case <-l.closed:
			return nil, errors.Join(net.ErrClosed, c.Close())
		}
		l.mu.Lock()
		l.wanted = false
		l.mu.Unlock()
	}
	return &clientConn{Conn: c, l: l}, nil
}

// want closes a resting connection, or else the next that comes to rest.
func (l *clientListener) want() {
	l.mu.Lock()
	l.wanted = true
	var one *clientConn
	for one = range l.resting {
		break
	}
	l.mu.Unlock()
	if one != nil {
		one.Close() //nolint:errcheck // nobody used it
	}
}

func (l *clientListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// open returns how many connections there are.
func (l *clientListener) open() int { return len(l.slots) }

// changed is told by the server how it goes on with a connection ([http.Server].ConnState).
func (l *clientListener) changed(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*clientConn)
	if !ok {
		return
	}
	l.mu.Lock()
	leave := state == http.StateIdle && l.wanted
	if state == http.StateIdle && !leave {
		l.resting[c] = true
	} else {
		delete(l.resting, c)
	}
	l.mu.Unlock()
	switch {
	case leave:
		c.Close() //nolint:errcheck // nobody uses it
	case state == http.StateHijacked:
		c.passed()
		c.upgraded.Store(true)
	}
}

// A clientConn is a connection of a client's. Whoever does not take what is sent loses it, so that an answer is not
// kept for ever for somebody who does not read it. There is no such limit for reading here: the server reads ahead
// while a request is under way, however long that takes; see [pacedBody].
type clientConn struct {
	net.Conn
	l        *clientListener
	once     sync.Once
	upgraded atomic.Bool
	last     atomic.Int64 // when something passed, on one that was upgraded

	mu      sync.Mutex
	writeBy time.Time // the deadline that somebody else has set
}

// A writePiece is how much of an answer must go out in one idle time, at least.
const writePiece = 16 << 10

func (c *clientConn) Write(p []byte) (n int, err error) {
	for {
		if err := c.mayWrite(); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(n+writePiece, len(p))])
		n += m
		c.passed()
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// mayWrite sets the deadline of the next piece. The one that somebody else has set counts if it is earlier.
func (c *clientConn) mayWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := time.Now().Add(c.l.idle)
	if !c.writeBy.IsZero() && c.writeBy.Before(by) {
		by = c.writeBy
	}
	return c.Conn.SetWriteDeadline(by)
}

func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	return c.Conn.SetWriteDeadline(t)
}

func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *clientConn) passed() { c.last.Store(time.Now().UnixNano()) }

// Read ends an upgraded connection on which nothing has passed for long, in neither direction.
func (c *clientConn) Read(p []byte) (int, error) {
	if !c.upgraded.Load() {
		return c.Conn.Read(p)
	}
	for {
		last := c.last.Load()
		if err := c.Conn.SetReadDeadline(time.Unix(0, last).Add(c.l.tunnel)); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if n > 0 {
			c.passed()
		}
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.last.Load() != last {
			continue
		}
		return n, err
	}
}

func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.l.mu.Lock()
		delete(c.l.resting, c)
		c.l.mu.Unlock()
		<-c.l.slots
	})
	return err
}

// CloseWrite lets the server give a client time to read the last answer before the connection ends.
func (c *clientConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// NetConn returns the connection below, for what only that can do.
func (c *clientConn) NetConn() net.Conn { return c.Conn }
