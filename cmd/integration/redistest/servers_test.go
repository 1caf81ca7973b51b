package redistest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/redisstore"
)

var (
	newID  = verbs.NewID
	ask    = verbs.Ask
	claim  = verbs.Claim
	settle = verbs.Settle
	load   = verbs.Load
	done   = verbs.Done
	retry  = verbs.Retry
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

// do sends a command as an operator would.
func do(t testing.TB, c redisstore.Client, key string, args ...any) any {
	t.Helper()
	v, err := c.Do(context.Background(), key, args...)
	if err != nil {
		t.Fatalf("%v: %v", args[0], err)
	}
	return v
}
