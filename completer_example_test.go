package semel_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
)

type accountKey struct{}

// authenticate stands for what tells who asks.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), accountKey{}, r.Header.Get("X-Account"))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// The first run is lost, and its client gone. The completer runs the order for the account that has placed it.
func ExampleGuard_Completer() {
	keyring, err := keyring.New(keyring.Key{ID: "2026-11", Key: []byte("thirty-two bytes, kept elsewhere")})
	if err != nil {
		log.Fatal(err)
	}
	store, shipped := memstore.New(), make(chan string)
	ship := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		op := semel.FromContext(r.Context())
		if op.Attempt() == 1 {
			panic(http.ErrAbortHandler)
		}
		shipped <- fmt.Sprintf("shipped for %v, in run %d", r.Context().Value(accountKey{}), op.Attempt())
	})

	guard, err := semel.New(store, semel.ScopeContext(accountKey{}), semel.Rerun, semel.Options{
		Encryption: keyring,
		Policy:     semel.Policy{Complete: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	routes := http.NewServeMux()
	routes.Handle("POST /shipments", guard.Wrap(ship))
	server := authenticate(routes)

	completer, err := guard.Completer(routes, semel.CompleterOptions{
		Principal: func(ctx context.Context, r *http.Request, scope string) (*http.Request, error) {
			return r.WithContext(context.WithValue(ctx, accountKey{}, scope)), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var running sync.WaitGroup
	lose(server, "/shipments", "order-42")
	running.Go(func() { completer.Run(ctx) }) //nolint:errcheck // it returns how ctx ended
	fmt.Println(<-shipped)
	cancel()
	running.Wait()
	// Output: shipped for acme, in run 2
}

// lose sends a keyed POST as account acme to a handler that panics.
func lose(h http.Handler, path, key string) {
	defer func() { recover() }() //nolint:errcheck // the handler's own
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", key)
	h.ServeHTTP(httptest.NewRecorder(), r)
}

// invoice is a job: its first run finds the printer away.
func invoice(ctx context.Context, guard *semel.Guard, key semel.Key, request []byte) (string, error) {
	return semel.Do(ctx, guard, key, semel.Bytes(request), func(ctx context.Context) (string, error) {
		if semel.FromContext(ctx).Attempt() == 1 {
			return "", errors.New("the printer is away")
		}
		return fmt.Sprintf("printed %s", request), nil
	})
}

// A call of Do is stored, and run again until it ends.
func ExampleCompleterOptions_do() {
	keyring, err := keyring.New(keyring.Key{ID: "2026-11", Key: []byte("thirty-two bytes, kept elsewhere")})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Rerun, semel.Options{
		Encryption: keyring,
		Policy:     semel.Policy{Complete: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	completer, err := guard.Completer(nil, semel.CompleterOptions{
		Do: map[semel.Kind]func(context.Context, semel.Key, []byte) error{
			semel.KindDo: func(ctx context.Context, key semel.Key, request []byte) error {
				_, err := invoice(ctx, guard, key, request)
				return err
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var running sync.WaitGroup
	key := semel.Key{Scope: "tenant-7", Operation: "print invoice", Value: "invoice-2031"}
	_, err = invoice(ctx, guard, key, []byte("2031"))
	fmt.Println(err)
	running.Go(func() { completer.Run(ctx) }) //nolint:errcheck // it returns how ctx ended
	for {
		status, err := guard.Look(ctx, key)
		if err != nil {
			log.Fatal(err)
		}
		var printed string
		if status.Result(&printed) == nil {
			fmt.Println(printed)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	running.Wait()
	// Output:
	// the printer is away
	// printed 2031
}
