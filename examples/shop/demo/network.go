package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
)

// A balancer sends the first attempt to the first instance, and so on; further ones to the last.
type balancer struct {
	urls []string
	sent atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	to, err := url.Parse(b.urls[min(int(b.sent.Add(1)), len(b.urls))-1])
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = to.Host, ""
	return http.DefaultTransport.RoundTrip(r)
}

var errBroken = errors.New("the connection broke")

// A lossy network loses the first answers.
type lossy struct {
	lose int64 // how many
	had  atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || l.had.Add(1) > l.lose {
		return res, err
	}
	res.Body.Close() //nolint:errcheck // the answer is lost
	return nil, errBroken
}

// An unreliable network loses answers at random. It is for one call at a time.
type unreliable struct {
	random *rand.Rand
	share  float64
}

// RoundTrip implements http.RoundTripper.
func (u *unreliable) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || u.random.Float64() >= u.share {
		return res, err
	}
	res.Body.Close() //nolint:errcheck // the answer is lost
	return nil, errBroken
}

// An impatient proxy waits for an answer, then sends the request again, once. That is what nginx does with
// proxy_next_upstream non_idempotent.
type impatient struct{ to string }

func (p *impatient) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for range 2 {
		if p.pass(w, r, body) == nil {
			return
		}
	}
	http.Error(w, "no answer in time", http.StatusGatewayTimeout)
}

func (p *impatient) pass(w http.ResponseWriter, r *http.Request, body []byte) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	onward, err := http.NewRequestWithContext(ctx, r.Method, p.to+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, values := range r.Header {
		if name == "Idempotency-Key" {
			name = "idempotency-key" // net/http resends a request by itself if it finds the header
		}
		onward.Header[name] = values
	}
	res, err := http.DefaultTransport.RoundTrip(onward)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	w.Write(answer) //nolint:errcheck // the client has gone
	return nil
}
