package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// A reading is what a client takes an answer for.
type reading uint8

const (
	broken       reading = iota // no answer, or a part of one
	later                       // nothing final: in progress, pending, unavailable
	success                     // from here on final
	failure                     // refused by the service
	mismatch                    // the key stands for another request
	unknown                     // nobody knows, until somebody decides
	unreplayable                // it has ended, and its answer can't be given again
	odd                         // nothing that a client should get
)

var readings = [...]string{"no answer", "later", "success", "failure", "mismatch", "unknown", "unreplayable", "odd"}

func (r reading) String() string { return readings[r] }

func (r reading) final() bool { return r >= success }

// An attempt is one request.
type attempt struct {
	front      string // who was asked
	request    string
	sent, done time.Time
	reading    reading
	value      string
}

// An operation is what one key stands for, and what its clients did and learned.
type operation struct {
	key     string
	payment payment
	request string // the payment's JSON
	rival   string // another request under the same key; "" for none
	plan    plan

	mu       sync.Mutex
	attempts []attempt
}

// A plan is what clients will do for an operation. It is drawn with it, so that what is drawn next does not depend on
// how they fare.
type plan struct {
	others   int    // how many more ask for it at the same time
	together bool   // the rival is asked for at the same time, not when the operation is done
	again    bool   // it is asked for once more when it is done
	seed     uint64 // of whom they ask, and of their pauses
}

func (o *operation) add(a attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts = append(o.attempts, a)
}

// last returns the last reading of the operation's own request.
func (o *operation) last() reading {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.attempts) - 1; i >= 0; i-- {
		if o.attempts[i].request == o.request {
			return o.attempts[i].reading
		}
	}
	return broken
}

// The clients of a run.
type clients struct {
	cfg      *Config
	cast     *cast
	http     *http.Client
	begun    atomic.Int64 // operations
	requests atomic.Int64

	mu         sync.Mutex
	operations []*operation
}

func newClients(c *Config, k *cast) *clients {
	return &clients{cfg: c, cast: k, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 2 * c.Clients, DisableCompression: true},
		Timeout:   askTime,
	}}
}

const (
	askTime = 15 * time.Second // how long a client waits for an answer
	// How long an operation may take to come to its end once nobody is killed any more.
	endTime = 90 * time.Second
)

// work begins operations, one after the other, until ctx ends or there were enough, and brings each to its end.
func (c *clients) work(ctx, calm context.Context, n uint64) {
	draws := newDraws(c.cfg, n)
	for ctx.Err() == nil {
		if c.cfg.Operations > 0 && c.begun.Add(1) > int64(c.cfg.Operations) {
			return
		}
		o := draws.next()
		c.mu.Lock()
		c.operations = append(c.operations, o)
		c.mu.Unlock()
		c.operate(calm, o)
	}
}

// operate asks for an operation until it has a final answer, sometimes from several sides at once, and sometimes once
// more when it is done.
func (c *clients) operate(ctx context.Context, o *operation) {
	rng := rand.New(rand.NewPCG(o.plan.seed, 0))
	var others sync.WaitGroup
	ask := func(request string) {
		seed := rng.Uint64()
		others.Go(func() { c.pursue(ctx, o, request, rand.New(rand.NewPCG(seed, 0))) })
	}
	for range o.plan.others {
		ask(o.request)
	}
	if o.rival != "" && o.plan.together {
		ask(o.rival)
	}
	c.pursue(ctx, o, o.request, rng)
	others.Wait()
	if o.rival != "" && !o.plan.together && o.last().final() {
		c.pursue(ctx, o, o.rival, rng)
	}
	if o.plan.again {
		c.pursue(ctx, o, o.request, rng)
	}
}

// pursue asks until it gets a final answer, or ctx ends. Who gets no answer asks elsewhere soon, and less soon if there
// is none there either.
func (c *clients) pursue(ctx context.Context, o *operation, request string, rng *rand.Rand) {
	refused := 0
	for at := rng.IntN(len(c.cast.fronts)); ctx.Err() == nil; at++ {
		front := c.cast.fronts[at%len(c.cast.fronts)]
		a := attempt{front: front.name, request: request, sent: time.Now()}
		a.reading, a.value = c.ask(ctx, front.at(), o.key, request)
		a.done = time.Now()
		c.requests.Add(1)
		o.add(a)
		if a.reading.final() {
			return
		}
		most := c.cfg.Lease / 5
		if a.reading == broken {
			refused++
			most = min(most, time.Duration(refused)*c.cfg.Lease/50)
		} else {
			refused = 0
		}
		pause := time.NewTimer(time.Duration(rng.Int64N(int64(most))))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// ask sends one request.
func (c *clients) ask(ctx context.Context, at, key, request string) (reading, string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at+"/payments", strings.NewReader(request))
	if err != nil {
		return odd, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	// In this form the transport does not take the request for one that it may send twice: each attempt is seen.
	r.Header["idempotency-key"] = []string{key}
	res, err := c.http.Do(r)
	if err != nil {
		return broken, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return broken, ""
	}
	return read(res, string(body))
}

// read says what an answer means to whoever gets it.
func read(res *http.Response, body string) (reading, string) {
	value := fmt.Sprintf("%d %s", res.StatusCode, body)
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); media == "application/problem+json" {
		var p semel.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			return odd, value
		}
		switch {
		case p.Code == refusal.KeyReused:
			return mismatch, value
		case p.Code == refusal.OutcomeUnknown:
			return unknown, value
		case p.Code == refusal.ReplayUnavailable:
			return unreplayable, value
		case p.Retryable:
			return later, value
		}
		return odd, value
	}
	switch {
	case res.StatusCode == http.StatusCreated:
		return success, body
	case res.StatusCode == http.StatusUnprocessableEntity:
		return failure, body
	case res.StatusCode >= 500:
		return later, value
	}
	return odd, value
}

// finish asks for every operation once more, until each has a final answer or ctx ends.
func (c *clients) finish(ctx context.Context) {
	next := make(chan *operation)
	var asking sync.WaitGroup
	for n := range c.cfg.Clients {
		rng := rand.New(rand.NewPCG(c.cfg.Seed, uint64(n)))
		asking.Go(func() {
			for o := range next {
				c.pursue(ctx, o, o.request, rng)
			}
		})
	}
	for _, o := range c.operations {
		next <- o
	}
	close(next)
	asking.Wait()
}
