package chaos

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// serveLedger is a service as there are many: it knows nothing of idempotency, writes down each effect, and answers.
func (a *actor) serveLedger() error {
	book, err := openLedger(a.Ledger)
	if err != nil {
		return err
	}
	l, err := a.listen()
	if err != nil {
		return err
	}
	announce(l)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{front}/payments", func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		p, request, ok := readPayment(w, r)
		if !ok {
			return
		}
		time.Sleep(p.Takes)
		a.traps.pass(InHandler)
		if p.Kind == refused {
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, refusalBody) //nolint:errcheck // the gateway has died
			return
		}
		e := newEffect(r.Header.Get("Idempotency-Key"), request, r.PathValue("front"), began)
		e.Operation = r.Header.Get("Idempotency-Operation")
		e.Attempt, _ = strconv.Atoi(r.Header.Get("Idempotency-Attempt"))
		e.Fence, _ = strconv.ParseUint(r.Header.Get("Idempotency-Fence"), 10, 64)
		if err := book.append(e); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		a.traps.pass(AfterEffect)
		a.answer(w, e, p)
	})
	return fmt.Errorf("serve: %w", http.Serve(l, mux))
}

func (a *actor) answer(w http.ResponseWriter, e effect, p payment) {
	body := e.answer(p.Kind)
	if p.Kind != stream {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, body) //nolint:errcheck // the client has died
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusCreated)
	out := http.NewResponseController(w)
	for size, i := len(body)/streamEvents, 0; i < streamEvents; i++ {
		io.WriteString(w, body[i*size:(i+1)*size]) //nolint:errcheck // the client has died
		out.Flush()                                //nolint:errcheck // the client has died
		time.Sleep(time.Millisecond + p.Takes)
	}
}
