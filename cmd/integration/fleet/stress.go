package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Stress is a load on two gateways, of which one is killed in the middle and started again.
type Stress struct {
	Store    string        // one of Stores
	Rate     int           // requests a second, repeats included
	Duration time.Duration // of the load
	Repeats  int           // in percent of the requests
	Seed     uint64
	Patience time.Duration // how long a client tries again
	Dir      string
}

// A Report is what came of a Stress.
type Report struct {
	Operations int // keys
	Requests   int // answered or lost, repeats and retries not counted
	Retries    int
	Succeeded  int // requests that ended with the operation's answer
	Duplicates int // effects more than one for a key
	Untrue     int // answers that are not the key's first, or without an effect
	Replayed   int // answers that were marked as replays
	Kills      int
	Failures   map[string]int // by what the request ended with
	P50, P99   time.Duration  // of a request until it has its answer, retries included
}

// stressLease is that of the gateways: so long a killed one's operations wait.
const stressLease = 2 * time.Second

// Run puts the load on. Whatever it starts has ended when it returns.
func (s Stress) Run(ctx context.Context) (report *Report, err error) {
	service, err := NewService()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	storage, err := NewStorage(s.Store, s.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, storage.Close()) }()
	var urls []string
	var killed *Gateway
	for i := range 2 {
		g, err := NewGateway("gateway-"+strconv.Itoa(i), s.Dir, service, storage, "single",
			fmt.Sprintf("lease: %s, reconcile: '/operations/{operation}', replay_to: anyone, wait: 1s", stressLease))
		if err == nil {
			err = g.Start(ctx)
		}
		if err != nil {
			return nil, err
		}
		defer g.Kill() //nolint:errcheck // it may have been killed
		urls = append(urls, g.URL)
		killed = g
	}

	l := &load{stress: s, urls: urls, report: Report{Failures: map[string]int{}}, random: rand.New(rand.NewPCG(s.Seed, 0))}
	l.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer l.client.CloseIdleConnections()
	var killing sync.WaitGroup
	var failed error
	killing.Go(func() {
		time.Sleep(s.Duration / 2)
		if failed = killed.Kill(); failed == nil {
			time.Sleep(min(time.Second, s.Duration/10))
			failed = killed.Start(ctx)
		}
	})
	l.run(ctx)
	killing.Wait()
	if failed != nil {
		return nil, failed
	}
	l.judge(service.Effects())
	l.report.Kills = 1
	return &l.report, ctx.Err()
}

type load struct {
	stress Stress
	urls   []string
	client *http.Client
	random *rand.Rand

	mu     sync.Mutex
	report Report
	first  map[string]string // answers, by key
	took   []time.Duration
}

// run sends requests at the rate, each on its own, until the duration is over, and waits for their answers.
func (l *load) run(ctx context.Context) {
	l.first = map[string]string{}
	var requests sync.WaitGroup
	began := time.Now()
	total := int(float64(l.stress.Rate) * l.stress.Duration.Seconds())
	for i := range total {
		due := began.Add(time.Duration(float64(i) / float64(l.stress.Rate) * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return
		}
		// Most repeats follow soon, so that they meet the run of the first request.
		if n := l.report.Operations; n > 0 && l.random.IntN(100) < l.stress.Repeats {
			key := n - 1 - min(n-1, int(l.random.ExpFloat64()*float64(l.stress.Rate)/10))
			requests.Go(func() { l.request(ctx, key, i) })
			continue
		}
		key := l.report.Operations
		l.report.Operations++
		requests.Go(func() { l.request(ctx, key, i) })
	}
	requests.Wait()
}

// request asks for an operation until it has its answer, of one gateway and of the other in turn.
func (l *load) request(ctx context.Context, operation, turn int) {
	key, began := "stress-"+strconv.Itoa(operation), time.Now()
	ended := "no answer"
	for try := 0; ; try++ {
		status, body, after, err := l.ask(ctx, l.urls[(turn+try)%len(l.urls)], key, operation)
		switch {
		case err != nil:
			ended = "connection lost"
		case status == http.StatusCreated:
			l.mu.Lock()
			defer l.mu.Unlock()
			l.answered(key, body, time.Since(began))
			return
		default:
			ended = strconv.Itoa(status)
			if i := strings.Index(body, `"code":"`); i >= 0 {
				ended += " " + strings.SplitN(body[i+8:], `"`, 2)[0]
			}
		}
		wait := max(after, rand.N(min(2*time.Second, 100*time.Millisecond<<min(try, 10))))
		if time.Since(began)+wait > l.stress.Patience || ctx.Err() != nil {
			break
		}
		time.Sleep(wait)
		l.mu.Lock()
		l.report.Retries++
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Requests++
	l.report.Failures[ended]++
}

func (l *load) ask(ctx context.Context, url, key string, operation int) (status int, body string, after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/payments", strings.NewReader(`{"order":`+strconv.Itoa(operation)+`}`))
	if err != nil {
		return 0, "", 0, err
	}
	// Under a name that is not canonical, so that net/http does not send the request again by itself.
	r.Header["idempotency-key"] = []string{key}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Takes", strconv.Itoa(operation%20)+"ms")
	answer, err := l.client.Do(r)
	if err != nil {
		return 0, "", 0, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if answer.Header.Get("Idempotent-Replayed") != "" {
		l.mu.Lock()
		l.report.Replayed++
		l.mu.Unlock()
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return answer.StatusCode, string(content), time.Duration(seconds) * time.Second, err
}

// answered notes an answer. mu is held.
func (l *load) answered(key, body string, took time.Duration) {
	l.report.Requests++
	l.report.Succeeded++
	l.took = append(l.took, took)
	if first, known := l.first[key]; known && first != body {
		l.report.Untrue++
		return
	}
	l.first[key] = body
}

// judge compares what was answered with what was done.
func (l *load) judge(effects map[string]int) {
	for _, n := range effects {
		l.report.Duplicates += max(0, n-1)
	}
	for key, answer := range l.first {
		if effects[key] == 0 || answer != key+"/1" {
			l.report.Untrue++
		}
	}
	slices.Sort(l.took)
	if n := len(l.took); n > 0 {
		l.report.P50, l.report.P99 = l.took[n/2], l.took[n*99/100]
	}
}

// Err says what is wrong with the outcome, or nil: no effect twice, every answer true, and at least 99.9 % of the
// requests answered after retries.
func (r *Report) Err() error {
	var errs []error
	if r.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%d effects were duplicates", r.Duplicates))
	}
	if r.Untrue > 0 {
		errs = append(errs, fmt.Errorf("%d answers were not true", r.Untrue))
	}
	if r.Requests == 0 || r.Succeeded*1000 < r.Requests*999 {
		errs = append(errs, fmt.Errorf("%d of %d requests have succeeded, want 99.9 %%", r.Succeeded, r.Requests))
	}
	return errors.Join(errs...)
}
