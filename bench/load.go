package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A load sends keyed POSTs over connections of its own, in plain HTTP/1.1, so that the sender costs little.
type load struct {
	addr  string
	key   func(i int64) string
	next  atomic.Int64
	conns []net.Conn
	read  []*bufio.Reader
}

func newLoad(addr string, conns int, key func(int64) string) *load {
	return &load{addr: addr, key: key, conns: make([]net.Conn, conns), read: make([]*bufio.Reader, conns)}
}

// open opens the connections anew: the gateway closes those on which nothing comes for some seconds.
func (l *load) open() error {
	l.close()
	for i := range l.conns {
		c, err := net.Dial("tcp", l.addr)
		if err != nil {
			return fmt.Errorf("dial %s: %w", l.addr, err)
		}
		l.conns[i], l.read[i] = c, bufio.NewReader(c)
	}
	return nil
}

func (l *load) close() {
	for _, c := range l.conns {
		if c != nil {
			c.Close()
		}
	}
}

// one sends one request on connection i and reads its answer.
func (l *load) one(i int, buf []byte) ([]byte, error) {
	buf = fmt.Appendf(buf[:0], "POST /payments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		l.key(l.next.Add(1)), len(body200), body200)
	if _, err := l.conns[i].Write(buf); err != nil {
		return buf, err
	}
	resp, err := http.ReadResponse(l.read[i], nil)
	if err != nil {
		return buf, err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err == nil && (resp.StatusCode != http.StatusCreated || int(n) != len(answer200)) {
		err = fmt.Errorf("answered %d with %d bytes", resp.StatusCode, n)
	}
	return buf, err
}

// throughput keeps every connection busy for a span and returns requests a second.
func (l *load) throughput(span time.Duration) (float64, error) {
	if err := l.open(); err != nil {
		return 0, err
	}
	var done atomic.Int64
	start := time.Now()
	err := l.each(func(i int) error {
		var buf []byte
		var err error
		for time.Since(start) < span && err == nil {
			if buf, err = l.one(i, buf); err == nil {
				done.Add(1)
			}
		}
		return err
	})
	return float64(done.Load()) / time.Since(start).Seconds(), err
}

// latencies sends at a fixed rate for a span, each connection in its turn, and returns how long each request took from
// when it was due: a server that falls behind is not excused.
func (l *load) latencies(rate float64, span time.Duration) ([]time.Duration, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	all := make([][]time.Duration, len(l.conns))
	gap := time.Duration(float64(len(l.conns)) / rate * float64(time.Second))
	start := time.Now()
	err := l.each(func(i int) error {
		var buf []byte
		var err error
		due := start.Add(gap * time.Duration(i) / time.Duration(len(l.conns)))
		for due.Sub(start) < span && err == nil {
			time.Sleep(time.Until(due))
			if buf, err = l.one(i, buf); err == nil {
				all[i] = append(all[i], time.Since(due))
			}
			due = due.Add(gap)
		}
		return err
	})
	list := slices.Concat(all...)
	slices.Sort(list)
	return list, err
}

func (l *load) each(do func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(l.conns))
	for i := range l.conns {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// callers splits n operations over at most limit callers, numbered from 0, each of which does one after the other.
func callers(limit, n int, do func(caller int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for caller := range min(n, limit) {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				do(caller)
			}
		})
	}
	wg.Wait()
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
