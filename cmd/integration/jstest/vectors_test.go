package jstest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/semelhq/semel/internal/proof"
)

// The clients' vectors, in Chromium: without those of redirects, which the platform follows there.
func TestR66_TheVectorsPassInChromium(t *testing.T) {
	t.Parallel()
	var results struct {
		Passed int
		Failed []string
	}
	told := make(chan any)
	proof.Reads("client", "js")
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir("../../..")))
	mux.Handle("GET /cmd/integration/jstest/", http.StripPrefix("/cmd/integration/jstest/", http.FileServerFS(testdata)))
	mux.HandleFunc("POST /results", func(_ http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&results); err != nil {
			t.Errorf("read results: %v", err)
		}
		close(told)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	ctx, cancel := chromedp.NewContext(browser(t))
	t.Cleanup(cancel)
	p := &page{t: t, ctx: ctx, order: "vectors"}
	p.do()
	p.do(chromedp.Navigate(server.URL + "/cmd/integration/jstest/testdata/vectors/vectors.html"))
	await(t, told, "the results") // the page has no clock of its own, so it can't be polled
	for _, failed := range results.Failed {
		t.Error(failed)
	}
	if results.Passed < 200 {
		t.Errorf("%d vectors passed, want more than 200", results.Passed)
	}
}
