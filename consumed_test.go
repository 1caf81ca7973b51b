package semel_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// above is a middleware that does something to the request first.
func above(f func(*http.Request), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f(r)
		next.ServeHTTP(w, r)
	})
}

func readAll(r *http.Request) []byte {
	b, _ := io.ReadAll(r.Body)
	return b
}

// formOf returns a request of a kind with an amount, declared or in chunks.
func formOf(t *testing.T, kind, amount string, chunked bool) *http.Request {
	t.Helper()
	var body bytes.Buffer
	contentType := "application/json"
	switch kind {
	case "form":
		contentType = "application/x-www-form-urlencoded"
		body.WriteString(url.Values{"amount": {amount}, "csrf": {"x"}}.Encode())
	case "large parts":
		amount = strings.Repeat(amount, 10_000)
		fallthrough
	case "parts":
		w := multipart.NewWriter(&body)
		contentType = w.FormDataContentType()
		for _, name := range []string{"csrf", "amount"} {
			if err := w.WriteField(name, amount); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	default:
		body.WriteString(`{"amount":` + amount + `}`)
	}
	var src io.Reader = &body
	if chunked {
		src = struct{ io.Reader }{src}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", src)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Idempotency-Key", "k")
	return r
}

// over serves a request over a connection.
func over(t *testing.T, s *httptest.Server, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	r.URL.Scheme, r.URL.Host = "http", s.Listener.Addr().String()
	if s.TLS != nil {
		r.URL.Scheme = "https"
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	w := httptest.NewRecorder()
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	if _, err := io.Copy(w, res.Body); err != nil {
		t.Error(err)
	}
	return w
}

// served2 is a server of HTTP/1.1, and one of HTTP/2.
func served2(t *testing.T, h http.Handler) []*httptest.Server {
	t.Helper()
	one, two := httptest.NewServer(h), httptest.NewUnstartedServer(h)
	two.EnableHTTP2 = true
	two.StartTLS()
	t.Cleanup(one.Close)
	t.Cleanup(two.Close)
	return []*httptest.Server{one, two}
}

// What a middleware or the scope has read of a body is not in its fingerprint: another amount would be a repeat.
func TestField04_ABodyThatWasReadAboveIsRefused(t *testing.T) {
	t.Parallel()
	formValue := func(r *http.Request) { r.FormValue("csrf") }
	onePart := func(r *http.Request) {
		if m, err := r.MultipartReader(); err == nil {
			m.NextPart() //nolint:errcheck // what the body is does not matter
		}
	}
	closed := func(r *http.Request) { r.Body.Close() }
	gone := func(r *http.Request) { r.Body = nil }
	empty := func(r *http.Request) { readAll(r); r.Body = http.NoBody }
	some := func(r *http.Request) { io.CopyN(io.Discard, r.Body, 5) } //nolint:errcheck // what was read does not matter
	for _, c := range []struct {
		name, kind string
		read       func(*http.Request)
		declared   bool // shows only with a Content-Length
	}{
		{"a form's field", "form", formValue, false},
		{"a field of parts", "parts", formValue, false},
		{"one of the parts", "parts", onePart, false},
		{"one of large parts", "large parts", onePart, false},
		{"all of it", "json", func(r *http.Request) { readAll(r) }, false},
		{"closed", "json", closed, false},
		{"read and closed", "form", func(r *http.Request) { readAll(r); closed(r) }, false},
		{"taken away", "json", gone, false},
		{"replaced by nothing", "json", empty, false},
		{"a part", "json", some, true},
	} {
		for _, where := range []string{"middleware", "scope"} {
			t.Run(c.name+" by a "+where, func(t *testing.T) {
				t.Parallel()
				store, l, seen := memstore.New(), &ledger{}, &events{}
				scope := semel.ScopeFunc(func(r *http.Request) (string, error) {
					if where == "scope" {
						c.read(r)
					}
					return "alice", nil
				})
				g, err := semel.New(store, scope, semel.Hold, semel.Options{Observer: seen})
				if err != nil {
					t.Fatal(err)
				}
				h := g.Wrap(http.HandlerFunc(l.pay))
				if where == "middleware" {
					h = above(c.read, h)
				}
				refused := 0
				for _, s := range served2(t, h) {
					for _, chunked := range []bool{false, true} {
						if chunked && c.declared && where == "middleware" {
							continue
						}
						for _, amount := range []string{"10", "99999"} {
							w := over(t, s, formOf(t, c.kind, amount, chunked))
							checkProblem(t, w, 500, refusal.BodyConsumed)
							if !strings.Contains(w.Body.String(), `"retryable":false`) || w.Header().Get("Idempotency-Code") != string(refusal.BodyConsumed) {
								t.Errorf("chunked %v: %v %s", chunked, w.Header(), w.Body)
							}
							refused++
						}
					}
				}
				checkEffects(t, l, 0)
				checkRecords(t, store, 0)
				if n := seen.count(event.BodyConsumed); n != refused {
					t.Errorf("%d events of %d refusals", n, refused)
				}
				for _, e := range seen.all() {
					if e.Kind == event.BodyConsumed && (!errors.Is(e.Err, refusal.BodyConsumed) || !strings.Contains(e.Err.Error(), "put r.Body back") || e.Operation == "" || e.Correlation == "") {
						t.Errorf("reported as %+v", e)
					}
				}
			})
		}
	}
}

// Who puts the body back, or does not touch it, is welcome.
func TestField04_ABodyThatIsPutBackIsProtected(t *testing.T) {
	t.Parallel()
	putBack := func(r *http.Request) {
		b := readAll(r)
		r.Body = io.NopCloser(bytes.NewReader(b))
	}
	for _, c := range []struct {
		name, kind string
		do         func(*http.Request)
	}{
		{"read and put back", "json", putBack},
		{"a form read, parsed and put back", "form", func(r *http.Request) {
			b := readAll(r)
			r.Body = io.NopCloser(bytes.NewReader(b))
			r.FormValue("csrf")
			r.Body = io.NopCloser(bytes.NewReader(b))
		}},
		{"parts read, parsed and put back", "parts", func(r *http.Request) {
			b := readAll(r)
			r.Body = io.NopCloser(bytes.NewReader(b))
			r.FormValue("csrf")
			r.Body = io.NopCloser(bytes.NewReader(b))
		}},
		{"asked for a field that JSON has not", "json", func(r *http.Request) { r.FormValue("csrf"); r.PostFormValue("csrf") }},
		{"asked for the query", "form", func(r *http.Request) { r.URL.Query().Get("csrf") }},
		{"bounded", "json", func(r *http.Request) { r.Body = http.MaxBytesReader(nil, r.Body, 1000) }},
		{"made longer", "json", func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader("     ")))
		}},
		{"another length", "json", func(r *http.Request) {
			readAll(r)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{}`)), -1
		}},
	} {
		for _, where := range []string{"middleware", "scope"} {
			t.Run(c.name+" by a "+where, func(t *testing.T) {
				t.Parallel()
				for _, chunked := range []bool{false, true} {
					scope := semel.ScopeFunc(func(r *http.Request) (string, error) {
						if where == "scope" {
							c.do(r)
						}
						return "alice", nil
					})
					g, err := semel.New(memstore.New(), scope, semel.Hold, semel.Options{Observer: &events{}})
					if err != nil {
						t.Fatal(err)
					}
					var l ledger
					var amounts []string
					h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						amounts = append(amounts, string(readAll(r)))
						l.pay(w, r)
					}))
					if where == "middleware" {
						h = above(c.do, h)
					}
					s := httptest.NewServer(h)
					defer s.Close()
					checkRun(t, over(t, s, formOf(t, c.kind, "10", chunked)))
					if c.name != "another length" {
						checkProblem(t, over(t, s, formOf(t, c.kind, "99999", chunked)), 422, refusal.KeyReused)
					}
					checkReplay(t, over(t, s, formOf(t, c.kind, "10", chunked)))
					checkEffects(t, &l, 1)
					if len(amounts) != 1 || amounts[0] == "" {
						t.Errorf("the handler reads %q", amounts)
					}
				}
			})
		}
	}
}

func TestField04_DecompressionAboveNeedsTheNewLength(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length int64
		status int
	}{{-1, 201}, {0, 500}} { // as sent, which is longer
		g, _ := newGuard(t, nil, semel.Policy{})
		var l ledger
		s := httptest.NewServer(above(func(r *http.Request) {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			r.Body = z
			r.Header.Del("Content-Encoding")
			if c.length != 0 {
				r.ContentLength = c.length
			}
		}, g.Wrap(http.HandlerFunc(l.pay))))
		defer s.Close()
		r := formOf(t, "json", "10", false)
		packed := packed(`{"amount":10}`)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(packed)), int64(len(packed))
		r.Header.Set("Content-Encoding", "gzip")
		if w := over(t, s, r); w.Code != c.status {
			t.Errorf("length %d: %d %s", c.length, w.Code, w.Body)
		}
	}
}

// What has no key, or is safe, is nobody's to check; an empty body is one, unless it claims to be something.
func TestField04_OnlyKeyedBodiesAreLookedAt(t *testing.T) {
	t.Parallel()
	read := func(r *http.Request) { readAll(r) }
	send := func(p semel.Policy, method, key, contentType string, body io.Reader) *httptest.ResponseRecorder {
		g, _ := newGuard(t, nil, p)
		r := httptest.NewRequest(method, "/payments", body)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		return answer(above(read, g.Wrap(http.HandlerFunc((&ledger{}).pay))), r)
	}
	json := func() io.Reader { return strings.NewReader(`{}`) }
	nothing := func() io.Reader { return struct{ io.Reader }{strings.NewReader("")} } // of no declared length
	checkRun(t, send(semel.Policy{}, "GET", "k", "application/json", json()))
	checkRun(t, send(semel.Policy{}, "PUT", "", "application/json", json()))
	checkRun(t, send(semel.Policy{KeyOptional: true}, "POST", "", "application/json", json()))
	checkRun(t, send(semel.Policy{}, "POST", "k", "application/json", nil))
	checkRun(t, send(semel.Policy{}, "POST", "k", "", nothing()))
	checkProblem(t, send(semel.Policy{}, "POST", "k", "application/json", nothing()), 500, refusal.BodyConsumed)
	checkProblem(t, send(semel.Policy{}, "DELETE", "k", "", json()), 500, refusal.BodyConsumed)
	// Where the body may hold the key, none can't be told from one.
	checkProblem(t, send(semel.Policy{KeyField: "/key", KeyOptional: true}, "POST", "", "application/json", json()), 500, refusal.BodyConsumed)
}

func TestField04_R92_AnObservedBodyThatWasReadIsTold(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t, nil, semel.Policy{ObserveOnly: true})
	var got []string
	h := above(func(r *http.Request) { r.FormValue("csrf") }, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.FormValue("amount"))
		w.WriteHeader(http.StatusCreated)
	})))
	s := httptest.NewServer(h)
	defer s.Close()
	checkRun(t, over(t, s, formOf(t, "form", "10", false)))
	if e := seen.observed(t); e.Result != event.Refused || e.Code != refusal.BodyConsumed {
		t.Errorf("observed %+v", e)
	}
	if len(got) != 1 || got[0] != "10" {
		t.Errorf("the handler reads %q", got)
	}
	told := slices.DeleteFunc(seen.list, func(e event.Event) bool { return e.Kind != event.BodyConsumed })
	if len(told) != 1 || !told[0].Observed {
		t.Errorf("told %+v", told)
	}
}

// The guard has read the body when it asks these, so they can read it as well, and the handler after them.
func TestField04_HooksMayReadTheBody(t *testing.T) {
	t.Parallel()
	for _, observe := range []bool{false, true} {
		store, l := memstore.New(), &ledger{}
		p := semel.Policy{
			Mint:            func(r *http.Request, _ []byte) (string, error) { return "order-" + r.FormValue("amount"), nil },
			AuthorizeReplay: func(r *http.Request) error { return map[string]error{"10": nil}[r.FormValue("amount")] },
		}
		first, _ := newGuard(t, store, p)
		p.ObserveOnly = observe
		g, seen := newGuard(t, store, p)
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.FormValue("amount"); got != "10" {
				t.Errorf("the handler reads %q", got)
			}
			l.pay(w, r)
		})
		send := func(g *semel.Guard) *httptest.ResponseRecorder {
			r := formOf(t, "form", "10", false)
			r.Header.Del("Idempotency-Key")
			return answer(g.Wrap(handler), r)
		}
		checkRun(t, send(first))
		w := send(g)
		if observe {
			checkRun(t, w)
			if e := seen.observed(t); e.Result != event.Replayed {
				t.Errorf("observed %+v", e)
			}
		} else {
			checkReplay(t, w)
			if got := w.Header().Get("Idempotency-Key"); got != "order-10" {
				t.Errorf("minted %q", got)
			}
		}
	}
}

// A scope that reads the body is refused where the guard has read it before, too: the scope would be that of nothing.
func TestField04_AScopeReadsNoBodyBesideAKeyField(t *testing.T) {
	t.Parallel()
	scope := semel.ScopeFunc(func(r *http.Request) (string, error) { return "tenant " + string(readAll(r)), nil })
	g, err := semel.New(memstore.New(), scope, semel.Hold, semel.Options{Policy: semel.Policy{KeyField: "/key"}})
	if err != nil {
		t.Fatal(err)
	}
	var l ledger
	checkProblem(t, answer(g.Wrap(http.HandlerFunc(l.pay)), post("", `{"key":"k"}`)), 500, refusal.BodyConsumed)
	checkEffects(t, &l, 0)
}

// what a completer would run with is not the request any more.
func TestField04_R52_ACompletersPrincipalThatReadsTheBodyRunsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, seen := newFinishing(t, store, finishing())
		var l ledger
		h := g.Wrap(counted(&l, func(http.ResponseWriter, *http.Request, int) {}))
		wantProblem(t, answer(h, post("k", `{"amount":1}`)), http.StatusInternalServerError, refusal.NoAnswer)
		stop := finish(t, g, h, semel.CompleterOptions{Principal: func(_ context.Context, r *http.Request, _ string) (*http.Request, error) {
			readAll(r)
			return r, nil
		}})
		time.Sleep(time.Minute)
		stop()
		if l.count() != 1 || seen.count(event.BodyConsumed) == 0 || seen.count(event.CompletionFailed) == 0 {
			t.Errorf("%d runs, %d events, %d failures", l.count(), seen.count(event.BodyConsumed), seen.count(event.CompletionFailed))
		}
	})
}
