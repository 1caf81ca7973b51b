package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Flood is one principal's hanging up: claims made over plain sockets that are reset as soon as the request is written.
// Another principal asks all the while, as it did before, alone and while the first one waited for its answers.
type Flood struct {
	Store    string // one of Stores
	Claims   int    // that are given up
	Rate     int    // of them a second
	FailOpen bool   // the route fails open
	Dir      string
}

// A FloodReport is what came of a Flood for the other principal.
type FloodReport struct {
	Claims      int // given up, each over a connection of its own
	Alone       Latency
	Served      Latency        // while as many requests of the first principal were answered, as fast as that goes
	During      Latency        // while it hung up
	Refused     map[string]int // answers other than 201, by status and code
	Bypassed    int            // that were marked as unprotected
	Duplicates  int            // effects more than one for a key, whosever it was
	Unconnected int            // sockets that could not be opened
}

// A Latency is how long requests took.
type Latency struct {
	Requests int
	P50, P99 time.Duration
}

const (
	floodAccount, otherAccount = "mallory", "alice"
	floodSockets               = 64 // at once
	otherPause                 = 4 * time.Millisecond
)

// Run floods a gateway. Whatever it starts has ended when it returns.
func (f Flood) Run(ctx context.Context) (report *FloodReport, err error) {
	service, err := NewService()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	storage, err := NewStorage(f.Store, f.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, storage.Close()) }()
	g, err := NewGateway("gateway", f.Dir, service, storage, "header:X-Account", "fail_open: "+strconv.FormatBool(f.FailOpen))
	if err == nil {
		err = g.Start(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer g.Kill() //nolint:errcheck // it has nothing to lose
	o := &other{url: g.URL, refused: map[string]int{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}}
	defer o.client.CloseIdleConnections()

	r := &FloodReport{Claims: f.Claims}
	over := time.Duration(float64(f.Claims) / float64(f.Rate) * float64(time.Second))
	if r.Alone, err = o.ask(ctx, "alone", func() bool { return false }, over); err != nil {
		return nil, err
	}
	beside := func(name string, send func(address, key string) error) (l Latency, failed int, err error) {
		var ended atomic.Bool
		var flooding sync.WaitGroup
		flooding.Go(func() {
			defer ended.Store(true)
			failed = f.flood(ctx, strings.TrimPrefix(g.URL, "http://"), name, send)
		})
		l, err = o.ask(ctx, name, ended.Load, 20*over)
		flooding.Wait()
		return l, failed, err
	}
	if r.Served, _, err = beside("served", served); err != nil {
		return nil, err
	}
	if r.During, r.Unconnected, err = beside("flood", hangUp); err != nil {
		return nil, err
	}
	r.Refused, r.Bypassed = o.refused, o.bypassed
	if err := g.Stop(); err != nil { // no effect is under way when they are counted
		return nil, err
	}
	for _, n := range service.Effects() {
		r.Duplicates += max(0, n-1)
	}
	return r, ctx.Err()
}

// flood makes the claims in the way of send, and returns how many could not be made. Each key is asked for three times.
func (f Flood) flood(ctx context.Context, address, name string, send func(address, key string) error) (failures int) {
	var failed atomic.Int64
	numbers := make(chan int)
	var senders sync.WaitGroup
	for range floodSockets {
		senders.Go(func() {
			for i := range numbers {
				if err := send(address, "first-"+name+"-"+strconv.Itoa(i/3)); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	began := time.Now()
	for i := range f.Claims {
		due := began.Add(time.Duration(float64(i) / float64(f.Rate) * float64(time.Second)))
		if left := time.Until(due); left > 0 {
			time.Sleep(left)
		}
		if ctx.Err() != nil {
			break
		}
		numbers <- i
	}
	close(numbers)
	senders.Wait()
	return int(failed.Load())
}

// hangUp writes a whole request and resets the connection.
func hangUp(address, key string) error {
	return exchange(address, key, func(net.Conn) error { return nil })
}

// served writes a whole request and waits for its answer.
func served(address, key string) error {
	return exchange(address, key, func(c net.Conn) error {
		_, err := io.Copy(io.Discard, c)
		return err
	})
}

func exchange(address, key string, then func(net.Conn) error) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c, "POST /payments HTTP/1.1\r\nHost: %s\r\nX-Account: %s\r\nIdempotency-Key: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", address, floodAccount, key)
	if err == nil {
		err = then(c)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		err = errors.Join(err, tcp.SetLinger(0))
	}
	return errors.Join(err, c.Close())
}

// other is the principal that does nothing wrong.
type other struct {
	url      string
	client   *http.Client
	refused  map[string]int
	bypassed int
}

// ask asks for one operation after another, each three times, until it is told to end, at most for a time.
func (o *other) ask(ctx context.Context, name string, end func() bool, longest time.Duration) (Latency, error) {
	var took []time.Duration
	began := time.Now()
	for i := 0; !end() && time.Since(began) < longest; i++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+"/payments", strings.NewReader("{}"))
		if err != nil {
			return Latency{}, err
		}
		r.Header["idempotency-key"] = []string{name + "-" + strconv.Itoa(i/3)} // as in load.ask
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Account", otherAccount)
		sent := time.Now()
		answer, err := o.client.Do(r)
		if err != nil {
			return Latency{}, fmt.Errorf("ask as another principal: %w", err)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err != nil {
			return Latency{}, fmt.Errorf("ask as another principal: %w", err)
		}
		took = append(took, time.Since(sent))
		if answer.StatusCode != http.StatusCreated {
			o.refused[strconv.Itoa(answer.StatusCode)+" "+answer.Header.Get("Idempotency-Code")]++
		}
		if answer.Header.Get("Idempotency-Status") != "" {
			o.bypassed++
		}
		time.Sleep(otherPause)
	}
	slices.Sort(took)
	l := Latency{Requests: len(took)}
	if n := len(took); n > 0 {
		l.P50, l.P99 = took[n/2], took[n*99/100]
	}
	return l, nil
}

// Err says what is wrong for the other principal, or nil. Times are not judged.
func (r *FloodReport) Err() error {
	var errs []error
	for what, n := range r.Refused {
		errs = append(errs, fmt.Errorf("%d requests of another principal were refused: %s", n, what))
	}
	if r.Bypassed > 0 {
		errs = append(errs, fmt.Errorf("%d requests ran unprotected", r.Bypassed))
	}
	if r.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%d effects were duplicates", r.Duplicates))
	}
	if r.Alone.Requests == 0 || r.Served.Requests == 0 || r.During.Requests == 0 {
		errs = append(errs, errors.New("the other principal has asked nothing"))
	}
	if r.Unconnected > r.Claims/100 {
		errs = append(errs, fmt.Errorf("%d of %d sockets could not be opened", r.Unconnected, r.Claims))
	}
	return errors.Join(errs...)
}
