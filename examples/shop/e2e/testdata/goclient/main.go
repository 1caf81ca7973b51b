// Program goclient orders once by the client that is generated from the shop's description, though an answer is lost. Its
// arguments are the shop's address and a token.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/semelhq/semel/client"
)

// lossy loses the first answer.
type lossy struct {
	base http.RoundTripper
	sent atomic.Int32
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.base.RoundTrip(r)
	if err == nil && l.sent.Add(1) == 1 {
		return nil, errors.Join(errors.New("the answer is lost"), res.Body.Close())
	}
	return res, err
}

func main() {
	network := &lossy{base: http.DefaultTransport}
	transport, err := client.New(network, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	api, err := NewClientWithResponses(os.Args[1], WithHTTPClient(&http.Client{Transport: transport}),
		WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+os.Args[2])
			return nil
		}))
	if err != nil {
		log.Fatal(err)
	}
	made, err := api.CreateOrderWithResponse(context.Background(), &CreateOrderParams{IdempotencyKey: client.NewKey().Value},
		NewOrder{Lines: []Line{{Product: "book-1", Quantity: 600}}})
	if err != nil {
		log.Fatal(err)
	}
	if made.JSON201 == nil {
		log.Fatalf("%s %s", made.Status(), made.Body)
	}
	fmt.Println(network.sent.Load(), made.HTTPResponse.Header.Get("Idempotent-Replayed"), made.JSON201.Total)
}
