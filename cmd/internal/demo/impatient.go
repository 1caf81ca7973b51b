package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

// An impatientProxy stands in front of a service, as load balancers and meshes do. It gives each try a short time, then
// tries again by itself, and answers 504 when the tries are used up.
type impatientProxy struct {
	to      string
	timeout time.Duration
	tries   int

	mu   sync.Mutex
	hops []string // what came of each try
}

func (p *impatientProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	for range p.tries {
		rep := p.try(r, body)
		switch {
		case errors.Is(rep.err, context.DeadlineExceeded):
			p.note(fmt.Sprintf("no answer within %v, tries again", p.timeout))
			continue
		case rep.err != nil:
			p.note("no connection, tries again")
			continue
		}
		p.note(describe(rep.status, rep.header))
		maps.Copy(w.Header(), rep.header)
		w.WriteHeader(rep.status)
		io.WriteString(w, rep.body) //nolint:errcheck // the client is gone; nobody is left to tell
		return
	}
	p.note("gives up: 504 to the client")
	w.WriteHeader(http.StatusGatewayTimeout)
}

func (p *impatientProxy) try(r *http.Request, body []byte) reply {
	ctx, cancel := context.WithTimeout(r.Context(), p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, p.to+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	req.Header = r.Header.Clone()
	return receive(plainTransport.RoundTrip(req))
}

func (p *impatientProxy) note(hop string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hops = append(p.hops, hop)
}

// taken returns what came of the tries since it was last called.
func (p *impatientProxy) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	hops := p.hops
	p.hops = nil
	return hops
}
