package redisstore_test

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

// A commander is what the client library in use can do: the method of go-redis that sends a command of any kind, for
// example. Its adapter is
//
//	func (c client) Do(ctx context.Context, _ string, args ...any) (any, error) {
//		v, err := c.goRedis.Do(ctx, args...).Result()
//		if errors.Is(err, redis.Nil) {
//			return nil, nil
//		}
//		return v, err
//	}
type commander func(ctx context.Context, args ...any) (any, error)

func (do commander) Do(ctx context.Context, _ string, args ...any) (any, error) {
	return do(ctx, args...)
}

func accountOf(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

// The client comes from a library such as rueidis or go-redis; without a server this example compiles, and does not
// run.
func Example() {
	var client commander // of the library

	store, err := redisstore.Open(context.Background(), client, redisstore.Options{Prefix: "payments:"})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semel.New(store, semel.ScopeFunc(accountOf), driver.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /payments", guard.Wrap(http.HandlerFunc(pay)))
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func pay(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }
