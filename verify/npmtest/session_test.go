package npmtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A session is one key, one order and one API to ask with them.
type session struct {
	*testing.T
	api   *api
	order string
	// payment asks alice's payment of the order under the key.
	payment request
}

func newSession(t *testing.T, a *api, name string) *session {
	order := "order-" + name
	return &session{T: t, api: a, order: order, payment: request{
		method: "POST", path: "/payments", keys: []string{"key-" + name}, body: bodyOf(order, "100"),
		headers: map[string]string{"Authorization": "Bearer alice", "Content-Type": "application/json"},
	}}
}

func bodyOf(order, amount string) string {
	return fmt.Sprintf(`{"order":%q,"amount":%s}`, order, amount)
}

func (s *session) send(r request) reply { return s.api.send(s.Context(), r) }

// on repeats the payment on a path, n times one after the other, and tells what came.
func (s *session) on(path string, n int) string {
	replies := make([]reply, n)
	for i := range replies {
		replies[i] = s.send(s.payment.on(path))
	}
	return s.told(replies...)
}

// told tells statuses, and how many effects the order has had: "201, 201 again; 1 effect" is a first answer, the very
// same once more, and one effect.
func (s *session) told(replies ...reply) string {
	var told []string
	for i, r := range replies {
		text := r.String()
		if i > 0 && r.same(replies[0]) {
			text += " again"
		}
		told = append(told, text)
	}
	return strings.Join(told, ", ") + "; " + s.effects()
}

// counted tells statuses by how many there are, where it says nothing which came first.
func (s *session) counted(replies []reply) string {
	n := map[string]int{}
	for _, r := range replies {
		n[r.String()]++
	}
	var told []string
	for _, status := range []string{"201", "409"} {
		if n[status] > 0 {
			told = append(told, fmt.Sprintf("%d times %s", n[status], status))
		}
		delete(n, status)
	}
	for status := range n {
		told = append(told, status)
	}
	return strings.Join(told, ", ") + "; " + s.effects()
}

type ledger struct {
	Payments []struct{ Customer, Order string }
	Running  []string
}

func (s *session) ledger() (l ledger) {
	r := s.send(get("/payments"))
	if err := json.Unmarshal([]byte(r.body), &l); err != nil {
		s.Fatalf("GET /payments: %s %v: %v", r, r.err, err)
	}
	return l
}

// paid returns how often an order was.
func (l ledger) paid(order string) (n int) {
	for _, p := range l.Payments {
		if p.Order == order {
			n++
		}
	}
	return n
}

// effects tells how often the order was paid.
func (s *session) effects() string {
	n := s.ledger().paid(s.order)
	if n == 1 {
		return "1 effect"
	}
	return strconv.Itoa(n) + " effects"
}

// until waits until something is so.
func (s *session) until(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// begin sends a request and returns when its handler has begun, or has ended already. What it returns ends its client,
// and waits for that.
func (s *session) begin(r request) (leave func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var left sync.WaitGroup
	left.Go(func() { s.api.send(ctx, r) })
	s.until("a handler has begun", func() bool {
		l := s.ledger()
		return slices.Contains(l.Running, s.order) || l.paid(s.order) > 0
	})
	return func() { cancel(); left.Wait() }
}

// atOnce sends a request n times at once.
func (s *session) atOnce(r request, n int) []reply {
	replies := make([]reply, n)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = s.send(r) })
	}
	all.Wait()
	return replies
}

// settled repeats a request for as long as it is in progress.
func (s *session) settled(r request) (last reply) {
	s.until("the request in progress has ended", func() bool {
		last = s.send(r)
		return last.status != http.StatusConflict
	})
	return last
}

// pipelined sends requests in one write on one connection, and returns what is to be read there.
func (s *session) pipelined(requests ...request) (conn net.Conn, in *bufio.Reader) {
	var wire []byte
	for _, r := range requests {
		wire = append(wire, r.wire(s.api.host())...)
	}
	conn, err := net.Dial("tcp", s.api.host())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.Fatal(err)
	}
	if _, err := conn.Write(wire); err != nil {
		s.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}
