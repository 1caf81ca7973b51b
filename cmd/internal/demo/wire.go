package demo

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A lossyWire carries one request to an address and loses the answer: the connection breaks when the answer's first
// byte comes, before any of it has reached the client.
type lossyWire struct {
	listener net.Listener
	to       string
	lost     chan struct{} // closed when an answer was lost
	once     sync.Once
	work     sync.WaitGroup
}

func newLossyWire(to string) (*lossyWire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &lossyWire{listener: l, to: to, lost: make(chan struct{})}
	w.work.Go(w.accept)
	return w, nil
}

func (w *lossyWire) url() string { return "http://" + w.listener.Addr().String() }

func (w *lossyWire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.work.Go(func() { w.carry(client) })
	}
}

func (w *lossyWire) carry(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", w.to, time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	w.work.Go(func() { io.Copy(server, client) }) //nolint:errcheck // it ends when either side is closed
	var first [1]byte
	if _, err := io.ReadFull(server, first[:]); err == nil {
		w.once.Do(func() { close(w.lost) })
	}
}

// close ends the wire and everything that it carries.
func (w *lossyWire) close() error {
	err := w.listener.Close()
	w.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
