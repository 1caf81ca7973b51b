package verify

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func wireTo(t *testing.T, h http.HandlerFunc, secure bool) *wire {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL + "/api")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{base: base, timeout: 5 * time.Second}
	if secure {
		w.tls = server.Client().Transport.(*http.Transport).TLSClientConfig
	}
	return w
}

func TestExchangeCarriesBytes(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		w := wireTo(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header()["X-Keys"] = r.Header["Idempotency-Key"]
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, `{"code":"`+r.URL.RequestURI()+" "+string(body)+`"}`)
		}, secure)
		r := request{method: "POST", path: "/a?b=c", body: []byte("body")}.adding("Idempotency-Key", "1").adding("Idempotency-Key", "2")
		a := w.exchange(t.Context(), r, manner{})
		if a.err != nil || a.status != http.StatusTeapot || !a.problem || a.code != "/api/a?b=c body" || strings.Join(a.header["X-Keys"], " ") != "1 2" {
			t.Errorf("secure %t: answer %v, code %q, keys %q", secure, a, a.code, a.header["X-Keys"])
		}
	}
}

func TestExchangeNeverResends(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	w := wireTo(t, func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}, false)
	if a := w.exchange(t.Context(), request{method: "POST", path: "/"}, manner{}); a.err == nil {
		t.Errorf("answer %v, want none", a)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("sent %d times", n)
	}
	if a := w.exchange(t.Context(), request{method: "POST", path: "/"}, manner{twice: true}); a.err == nil || asked.Load() != 3 {
		t.Errorf("delivered %d times, want twice", asked.Load()-1)
	}
}

func TestExchangeHangsUp(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 100)
	w := wireTo(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/cut" {
			w.WriteHeader(http.StatusCreated)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
		gone <- struct{}{}
	}, false)
	for seen, tries := false, 0; !seen; tries++ { // on a busy machine it may have left before the server looks
		soon := 20 * time.Millisecond << min(tries, 6)
		if a := w.exchange(t.Context(), request{method: "POST", path: "/leave"}, manner{leave: soon}); !errors.Is(a.err, errLeft) {
			t.Errorf("answer %v, want that the client left", a)
		}
		select {
		case <-gone:
			seen = true
		case <-time.After(time.Second):
			if tries == 20 {
				t.Fatal("the server does not see that the client has left")
			}
		}
	}
	if a := w.exchange(t.Context(), request{method: "POST", path: "/cut"}, manner{cut: true}); !errors.Is(a.err, errCut) || a.status != http.StatusCreated {
		t.Errorf("answer %v, want its status alone", a)
	}
	<-gone
}
