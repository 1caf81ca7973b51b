package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

// Check says what is wrong with Policy, or nil.
func Check(ctx context.Context, solution bool) error {
	policy := Policy()
	if solution {
		policy = solved()
	}
	var charged atomic.Int32
	var loses atomic.Bool
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charged.Add(1)
		if loses.Load() {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer service.Close()
	at, err := url.Parse(service.URL)
	if err != nil {
		return err
	}
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{})
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	gateway := httptest.NewServer(guard.Route(policy).Wrap(proxy))
	defer gateway.Close()
	for _, c := range []struct {
		loses bool
		why   string
	}{
		{false, "all went well, and the request came three times"},
		{true, "the service's answer was lost, and the client asked again with its key"},
	} {
		loses.Store(c.loses)
		charged.Store(0)
		for range 3 {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway.URL, strings.NewReader(`{"amount":4900}`))
			if err != nil {
				return err
			}
			r.Header["idempotency-key"] = []string{fmt.Sprintf("key-%v", c.loses)}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			if err := res.Body.Close(); err != nil {
				return err
			}
			if !c.loses && res.StatusCode != http.StatusCreated {
				return errors.New("the service said 201, and the client got " + res.Status)
			}
		}
		if n := charged.Load(); n != 1 {
			return fmt.Errorf("%s: the service has charged %d times", c.why, n)
		}
	}
	return nil
}
