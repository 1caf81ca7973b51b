package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/shardstore"
)

const (
	openTime  = 2 * time.Second // for one try to open a store
	openPause = 20 * time.Millisecond
)

// persist opens a store whose server may be down just now, as whoever starts such a process would start it again.
func persist[T any](ctx context.Context, open func(context.Context) (T, error)) (T, error) {
	for until := time.Now().Add(startTime); ; {
		once, cancel := context.WithTimeout(ctx, openTime)
		opened, err := open(once)
		cancel()
		if err == nil || time.Now().After(until) {
			return opened, err
		}
		time.Sleep(openPause)
	}
}

// openStore opens the store of a gateway. Of shards the second half joins.
func (a *actor) openStore(ctx context.Context, log *slog.Logger) (driver.Store, error) {
	if len(a.Shards) == 0 {
		return a.openAddress(ctx, a.Store, log)
	}
	var shards []shardstore.Shard
	for i, address := range append([]string{a.Store}, a.Shards...) {
		s, err := a.openAddress(ctx, address, log)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprint("shard-", i+1)
		shards = append(shards, shardstore.Shard{
			Name: name, Store: s, Joins: i > len(a.Shards)/2, Breaker: breaker.New(breaker.Options{Name: name}),
		})
	}
	change := shardstore.Prepare
	if a.Moves {
		change = shardstore.Move
	}
	return shardstore.New(shards, shardstore.Options{Change: change})
}

func (a *actor) openAddress(ctx context.Context, address string, log *slog.Logger) (driver.Store, error) {
	if err := stores.Check(address); err != nil {
		return nil, err
	}
	address, err := a.watched(address)
	if err != nil {
		return nil, err
	}
	opened, err := persist(ctx, func(ctx context.Context) (*stores.Opened, error) {
		return stores.Open(ctx, address, stores.Options{Cache: a.Cache, Log: log})
	})
	if err != nil {
		return nil, err
	}
	return opened.Store, nil
}

// errorLog is what the processes log to.
func errorLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// watched returns the address of a store by way of this process, where the trap between a store's server and its reply
// is. A file has none.
func (a *actor) watched(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("address of the store: %w", err)
	}
	if u.Scheme != "postgres" && u.Scheme != "redis" {
		return address, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for the store: %w", err)
	}
	go a.forward(l, u.Host)
	u.Host = l.Addr().String()
	return u.String(), nil
}

// forward passes connections on. One whose other side has ended is reset.
func (a *actor) forward(l net.Listener, to string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				defer client.Close()
				io.Copy(client, server) //nolint:errcheck // the client sees the end of it
			}()
			io.Copy(&trappedRequests{server, a.traps}, client) //nolint:errcheck // the server sees the end of it
		}()
	}
}

// trappedRequests are what is sent to a store's server. This process can die behind one that decides something.
type trappedRequests struct {
	io.Writer
	traps *traps
}

// decisions are what requests contain that change a record.
var decisions = [][]byte{[]byte("COMMIT"), []byte(".claim_1("), []byte(".extend_1("), []byte(".settle_1("), []byte(".save_step_1("), []byte("EVALSHA")}

func (r *trappedRequests) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	for _, d := range decisions {
		if err == nil && bytes.Contains(p, d) {
			r.traps.pass(Unanswered)
			break
		}
	}
	return n, err
}
