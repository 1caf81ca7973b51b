package jstest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/semelhq/semel/cmd/internal/gateway"
)

// What a page could read of an answer; Error is the browser's if it could read none.
type read struct {
	Status                   int
	Body                     string
	Replayed, Location, Code string
	Error                    string
}

// A page of another origin than the API's reads the replay of an answer that it could have read, and loses nothing by
// having lost that.
func TestR59_Field17_APageOfAnotherOriginReadsReplays(t *testing.T) {
	b := browser(t)
	for _, c := range []struct {
		name   string
		ownway bool // the service says itself who may read
		cors   func(origin string) gateway.CORS
		reads  bool // the gateway's own answers too
	}{
		{"the service allows the page", true, func(string) gateway.CORS { return gateway.CORS{} }, false},
		{"the gateway allows the page", false, func(origin string) gateway.CORS { return gateway.CORS{Origins: []string{origin}} }, true},
		{"the gateway allows all", false, func(string) gateway.CORS { return gateway.CORS{Origins: []string{"*"}} }, true},
		{"both allow it", true, func(origin string) gateway.CORS { return gateway.CORS{Origins: []string{origin}, Credentials: true} }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<title>shop</title>") }))
			t.Cleanup(pages.Close)
			var charges atomic.Int64
			held, arrived := make(chan any), make(chan any)
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if h := w.Header(); c.ownway {
					h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
					h.Set("Access-Control-Allow-Headers", "content-type, idempotency-key")
					h.Set("Access-Control-Expose-Headers", "Location, Idempotent-Replayed")
					h.Set("Vary", "Origin")
				}
				if r.Method == http.MethodOptions {
					return
				}
				n := charges.Add(1)
				if n == 1 {
					close(arrived)
					<-held
				}
				w.Header().Set("Location", fmt.Sprintf("/charges/%d", n))
				w.WriteHeader(http.StatusCreated)
				fmt.Fprintf(w, "charge %d", n)
			}))
			t.Cleanup(service.Close)
			api := gatewayBefore(t, service.URL, c.cors(pages.URL))

			ctx, cancel := chromedp.NewContext(b)
			t.Cleanup(cancel)
			if err := chromedp.Do(ctx); err != nil {
				t.Fatal(err)
			}
			run := func(what string, actions ...chromedp.Action[chromedp.Void]) {
				t.Helper()
				within, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				if err := chromedp.Do(within, actions...); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			run("open the page", chromedp.Navigate(pages.URL))
			const script = `globalThis.cut = new AbortController(), globalThis.got = [], globalThis.pay = async (body, signal) => {
				const found = {status: 0, body: "", replayed: "", location: "", code: "", error: ""}
				try {
					const res = await fetch("http://%s/charges", {method: "POST", body, signal,
						headers: {"Idempotency-Key": "k", "Content-Type": "application/json"}})
					const field = (name) => res.headers.get(name) ?? ""
					Object.assign(found, {status: res.status, replayed: field("Idempotent-Replayed"), location: field("Location"),
						code: field("Idempotency-Code"), body: await res.text()})
				} catch (e) { found.error = String(e) }
				got.push(JSON.stringify(found))
			}, 0`
			evaluate := func(what, js string) {
				t.Helper()
				if _, err := chromedp.Run(ctx, chromedp.Evaluate[int](js)); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			evaluate("prepare", fmt.Sprintf(script, api))
			answer := func(n int) (r read) {
				t.Helper()
				run("wait for an answer", poll(fmt.Sprintf("got.length === %d", n)))
				text, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf("got[%d]", n-1)))
				if err == nil {
					err = json.Unmarshal([]byte(text), &r)
				}
				if err != nil {
					t.Fatal(err)
				}
				return r
			}

			evaluate("pay", `pay("{}", cut.signal), 0`)
			await(t, arrived, "the payment")
			evaluate("lose the answer", `cut.abort(), 0`)
			if r := answer(1); r.Error == "" {
				t.Fatalf("the first answer was not lost: %+v", r)
			}
			evaluate("another amount", `pay('{"amount":2}'), 0`)
			switch r := answer(2); {
			case c.reads && (r.Status != http.StatusUnprocessableEntity || r.Code != "IDEMPOTENCY_KEY_REUSED"):
				t.Errorf("of a refusal the page reads %+v", r)
			case !c.reads && r.Error == "":
				t.Errorf("of a refusal the page reads %+v, although nobody has allowed that", r)
			}
			close(held)
			for n := 3; ; n++ {
				evaluate("pay again", `pay("{}"), 0`)
				r := answer(n)
				if n < 300 && (r.Status == http.StatusConflict || !c.reads && r.Error != "") {
					continue // the first has not ended
				}
				if r.Status != http.StatusCreated || r.Body != "charge 1" || r.Location != "/charges/1" || r.Replayed != "true" {
					t.Errorf("of the replay the page reads %+v", r)
				}
				break
			}
			if n := charges.Load(); n != 1 {
				t.Errorf("%d charges", n)
			}
		})
	}
}
