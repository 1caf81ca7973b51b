package fleet

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An other is the principal that does nothing wrong.
type other struct {
	url      string
	client   *http.Client
	refused  map[string]int
	bypassed int
}

const (
	otherPause  = 4 * time.Millisecond
	freshlyEach = 8 // of its requests, one comes over a new connection
)

func newOther(url string) *other {
	return &other{url: url, refused: map[string]int{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: time.Minute}}
}

func (o *other) close() { o.client.CloseIdleConnections() }

// beside asks as long as another thing takes.
func (o *other) beside(ctx context.Context, name string, do func(context.Context)) Latency {
	asking, end := context.WithCancel(ctx)
	var doing sync.WaitGroup
	doing.Go(func() {
		defer end()
		do(ctx)
	})
	l := o.ask(asking, name)
	doing.Wait()
	return l
}

// ask asks for one operation after another, each three times, until the context ends. A request that is under way then
// is still waited for.
func (o *other) ask(ctx context.Context, name string) Latency {
	var took []time.Duration
	for i := 0; ctx.Err() == nil; i++ {
		sent := time.Now()
		if what := o.once(context.WithoutCancel(ctx), name+"-"+strconv.Itoa(i/3), i%freshlyEach == 0); what != "" {
			o.refused[what]++
		}
		took = append(took, time.Since(sent))
		time.Sleep(otherPause)
	}
	return latency(took)
}

// once asks, and says how it was refused.
func (o *other) once(ctx context.Context, key string, freshly bool) (refusal string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+"/payments", strings.NewReader("{}"))
	if err != nil {
		return err.Error()
	}
	r.Close = freshly
	r.Header["idempotency-key"] = []string{key} // as in load.ask
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Account", otherAccount)
	answer, err := o.client.Do(r)
	if err != nil {
		return "no answer"
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return "half an answer"
	}
	if answer.Header.Get("Idempotency-Status") != "" {
		o.bypassed++
	}
	if answer.StatusCode != http.StatusCreated {
		return strings.TrimSpace(strconv.Itoa(answer.StatusCode) + " " + answer.Header.Get("Idempotency-Code"))
	}
	return ""
}

func latency(took []time.Duration) Latency {
	n := len(took)
	if n == 0 {
		return Latency{}
	}
	slices.Sort(took)
	return Latency{Requests: n, P50: took[n/2], P99: took[n*99/100], Max: took[n-1]}
}
