package semel_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/memstore"
)

type shop struct {
	client *http.Client
	url    string
}

// send calls another system; within a step the client sends the key that is derived for it.
func (s *shop) send(ctx context.Context, path, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	res, err := s.client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("answered %s", res.Status)
	}
	return string(text), err
}

func (s *shop) placeOrder(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	charge, err := semel.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return s.send(ctx, "/charges", `{"amount":4900}`)
	})
	if err != nil {
		http.Error(w, "the card could not be charged", http.StatusBadGateway)
		return
	}
	parcel, err := semel.Step(ctx, "reserve", func(ctx context.Context) (string, error) {
		return s.send(ctx, "/parcels", `{"charge":"`+charge+`"}`)
	})
	if err != nil {
		http.Error(w, "the parcel could not be reserved", http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s, %s\n", charge, parcel)
}

// The parcel service is away when the order comes first. The repeat resumes after the charge.
func ExampleStep() {
	away := true
	downstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/parcels" && away {
			away = false
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Println("effect:", r.URL.Path, r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, strings.Trim(r.URL.Path, "/s"), "-1")
	}))
	defer downstream.Close()
	transport, err := client.New(nil, client.Options{Bare: true})
	if err != nil {
		log.Fatal(err)
	}
	s := &shop{client: &http.Client{Transport: transport}, url: downstream.URL}
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Rerun, semel.Options{
		DerivationSecret: []byte("never changes, 16 bytes or more"),
	})
	if err != nil {
		log.Fatal(err)
	}
	h := guard.Wrap(http.HandlerFunc(s.placeOrder))
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"order":"42"}`))
		r.Header.Set("Idempotency-Key", "order-42")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}

	// Output:
	// effect: /charges ceafd7cd-d007-8cbe-a027-d75531432f57
	// 502 the parcel could not be reserved
	// effect: /parcels d2e8ae00-4c43-875f-83fb-cf04da1fe3d6
	// 201 charge-1, parcel-1
	// 201 charge-1, parcel-1
}
