package redistest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/redisstore"
)

// The servers that tests share, started when they are first asked for.
var (
	single  = servers.Shared[*servers.Redis]{Start: func() (*servers.Redis, error) { return servers.NewRedis() }}
	cluster = servers.Shared[*servers.RedisCluster]{Start: func() (*servers.RedisCluster, error) { return servers.NewRedisCluster(3) }}
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := single.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// startRedis starts a server of the test's own.
func startRedis(t testing.TB, args ...string) *servers.Redis {
	t.Helper()
	r, err := servers.NewRedis(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// startCluster starts a Cluster of the test's own.
func startCluster(t testing.TB) *servers.RedisCluster {
	t.Helper()
	c, err := servers.NewRedisCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A clientLibrary connects to a server, or a Cluster.
type clientLibrary struct {
	name    string
	connect func(t testing.TB, addrs ...string) redisstore.Client
}

var clientLibraries = []clientLibrary{
	{"rueidis", rueidisTo},
	{"go-redis", goRedisTo},
}

func rueidisTo(t testing.TB, addrs ...string) redisstore.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: addrs, ForceSingleClient: len(addrs) == 1, DisableCache: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := redisclient.New(client)
	t.Cleanup(c.Close)
	return c
}

func goRedisTo(t testing.TB, addrs ...string) redisstore.Client {
	t.Helper()
	// A server that gets no time on a busy machine is no failure, and a command that is sent again would be executed
	// twice.
	return goRedisWith(t, &redis.UniversalOptions{
		Addrs: addrs, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	})
}

func goRedisWith(t testing.TB, o *redis.UniversalOptions) redisstore.Client {
	t.Helper()
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { client.Close() })
	return goRedis{client}
}

// prefix returns one that no other test has.
func prefix() string { return "test:" + driver.NewToken().String()[:12] + ":" }

func open(t testing.TB, client redisstore.Client, o redisstore.Options) *redisstore.Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = prefix()
	}
	s, err := redisstore.Open(t.Context(), client, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newID() driver.ID {
	a, b, c := driver.NewToken(), driver.NewToken(), driver.NewToken()
	return driver.ID([]byte(string(a[:]) + string(b[:]) + string(c[:])))
}

func ask(p semel.LostPolicy) driver.Claim {
	return driver.Claim{
		Fingerprint: driver.Fingerprint{Raw: driver.NewToken()},
		Token:       driver.NewToken(),
		Lease:       time.Hour,
		Retention:   time.Hour,
		OnLost:      p,
		Operation:   "POST /payments",
		Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	}
}

func retry(c driver.Claim) driver.Claim {
	c.Token = driver.NewToken()
	return c
}

// claim claims a record that must be owned.
func claim(t testing.TB, s driver.Store, id driver.ID, c driver.Claim) driver.Record {
	t.Helper()
	rec, owned, err := s.Claim(context.Background(), id, c)
	if err != nil || !owned {
		t.Fatalf("Claim: owned is %t, error %v", owned, err)
	}
	return rec
}

func settle(t testing.TB, s driver.Store, id driver.ID, by driver.Owner, o driver.Outcome) driver.Record {
	t.Helper()
	rec, owned, err := s.Settle(context.Background(), id, by, o)
	if err != nil || !owned {
		t.Fatalf("Settle: owned is %t, error %v", owned, err)
	}
	return rec
}

func load(t testing.TB, s driver.Store, id driver.ID) driver.Record {
	t.Helper()
	rec, err := s.Load(context.Background(), id)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return rec
}

func done(body string) driver.Outcome {
	return driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 201, Body: []byte(body)}}
}

// do sends a command as an operator would.
func do(t testing.TB, c redisstore.Client, key string, args ...any) any {
	t.Helper()
	v, err := c.Do(context.Background(), key, args...)
	if err != nil {
		t.Fatalf("%v: %v", args[0], err)
	}
	return v
}
