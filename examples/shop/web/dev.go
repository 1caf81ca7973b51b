package web

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// Dev is what the page needs to be tried out, below /dev/: a session for anybody who asks, the card processor's ledger
// and its faults, and answers that are lost. It is for a shop that only its developer can reach. Without it a visitor
// has to bring a token, and sees the checkout alone.
type Dev struct {
	// Session returns the headers with which the page calls the API.
	Session   func() (map[string]string, error)
	Processor string // URL of the card processor

	lose atomic.Int32 // how many answers to payments are to be lost
}

// mount adds what is below /dev/, and returns the shop whose answers can be lost.
func (d *Dev) mount(mux *http.ServeMux, shop http.Handler) http.Handler {
	own := http.NewServeMux()
	own.HandleFunc("GET /dev/session", d.session)
	own.HandleFunc("GET /dev/ledger", func(w http.ResponseWriter, r *http.Request) { d.forward(w, r, "/ledger") })
	own.HandleFunc("PUT /dev/faults", func(w http.ResponseWriter, r *http.Request) { d.forward(w, r, "/faults") })
	own.HandleFunc("POST /dev/lose", func(w http.ResponseWriter, _ *http.Request) {
		d.lose.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.Handle("/dev/", http.NewCrossOriginProtection().Handler(own)) // another site's page must not break the shop
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/payments/process") || !d.loses() {
			shop.ServeHTTP(w, r)
			return
		}
		shop.ServeHTTP(torn{w}, r)
		http.NewResponseController(w).Flush() //nolint:errcheck // the client may have gone
		panic(http.ErrAbortHandler)
	})
}

// loses says whether the next answer is to be lost.
func (d *Dev) loses() bool {
	for {
		n := d.lose.Load()
		if n == 0 || d.lose.CompareAndSwap(n, n-1) {
			return n > 0
		}
	}
}

// torn lets half of each answer through. A browser repeats a request by itself if nothing of the answer arrives on a
// connection that was used before.
type torn struct{ http.ResponseWriter }

func (w torn) Write(p []byte) (int, error) {
	_, err := w.ResponseWriter.Write(p[:len(p)/2])
	return len(p), err
}

func (d *Dev) session(w http.ResponseWriter, _ *http.Request) {
	headers, err := d.Session()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	json.NewEncoder(w).Encode(map[string]any{"headers": headers}) //nolint:errcheck // the client has gone
}

// forward asks the card processor.
func (d *Dev) forward(w http.ResponseWriter, r *http.Request, path string) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, d.Processor+path, http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer, err := http.DefaultClient.Do(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(answer.StatusCode)
	io.Copy(w, answer.Body) //nolint:errcheck // the client has gone
}
