package redistest

import (
	"context"
	"errors"
	"strings"
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

// eachLibrary runs a test with every client library.
func eachLibrary(t *testing.T, test func(t *testing.T, lib clientLibrary)) {
	for _, lib := range clientLibraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			test(t, lib)
		})
	}
}

// refused checks that a verb failed with the given kind of error.
func refused(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: error %v, want that %q", what, err, kind)
	}
}

func TestAReplicaRefusesToWrite(t *testing.T) {
	t.Parallel()
	primary, replica, err := servers.NewRedisPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { primary.Close(); replica.Close() })
	t.Run("libraries", func(t *testing.T) {
		eachLibrary(t, func(t *testing.T, lib clientLibrary) {
			s := open(t, lib.connect(t, replica.Addr()), redisstore.Options{})
			_, _, err := s.Claim(t.Context(), newID(), ask(semel.Hold))
			refused(t, "claim", err, redisstore.ErrReadOnly)
			_, _, err = s.Claim(t.Context(), newID(), ask(semel.Rerun))
			refused(t, "claim under Rerun", err, redisstore.ErrReadOnly)
			refused(t, "audit", s.Audit(t.Context(), driver.AuditEntry{}), redisstore.ErrReadOnly)
		})
	})

	// A replica that has lost its primary, and does not serve what may be out of date.
	s := open(t, rueidisTo(t, replica.Addr()), redisstore.Options{})
	do(t, rueidisTo(t, replica.Addr()), "", "CONFIG", "SET", "replica-serve-stale-data", "no")
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err = s.Load(t.Context(), newID())
		if errors.Is(err, redisstore.ErrPrimaryDown) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("without its primary: error %v", err)
		}
	}
}

func TestAServerWithoutItsReplicasRefusesToWrite(t *testing.T) {
	t.Parallel()
	r := startRedis(t, "--min-replicas-to-write", "1")
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		s := open(t, lib.connect(t, r.Addr()), redisstore.Options{})
		_, _, err := s.Claim(t.Context(), newID(), ask(semel.Hold))
		refused(t, "claim", err, redisstore.ErrFewReplicas)
	})
}

func TestAUserMayBeDenied(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	root := rueidisTo(t, r.Addr())
	do(t, root, "", "ACL", "SETUSER", "reader", "on", ">readerpass", "~*", "+@read", "+evalsha", "+eval", "+info", "+time")
	do(t, root, "", "ACL", "SETUSER", "blind", "on", ">blindpass", "~other:*", "+@all")
	do(t, root, "", "ACL", "SETUSER", "mute", "on", ">mutepass", "~*", "&*", "+@all", "-info")
	do(t, root, "", "ACL", "SETUSER", "default", "resetpass", ">secret")
	type user struct{ name, password string }
	connects := map[string]func(t *testing.T, u user) redisstore.Client{
		"rueidis": func(t *testing.T, u user) redisstore.Client {
			client, err := rueidis.NewClient(rueidis.ClientOption{
				InitAddress: []string{r.Addr()}, Username: u.name, Password: u.password, ForceSingleClient: true, DisableCache: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			return redisclient.New(client)
		},
		"go-redis": func(t *testing.T, u user) redisstore.Client {
			client := redis.NewClient(&redis.Options{Addr: r.Addr(), Username: u.name, Password: u.password})
			t.Cleanup(func() { client.Close() })
			return goRedis{client}
		},
	}
	for name, connect := range connects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, u := range []user{{"reader", "readerpass"}, {"blind", "blindpass"}} {
				s := open(t, connect(t, u), redisstore.Options{})
				_, _, err := s.Claim(t.Context(), newID(), ask(semel.Hold))
				refused(t, "claim by "+u.name, err, redisstore.ErrDenied)
			}
			// One that may do all but ask what the server is does its work.
			s := open(t, connect(t, user{"mute", "mutepass"}), redisstore.Options{})
			claim(t, s, newID(), ask(semel.Hold))
		})
	}
	s := open(t, goRedisTo(t, r.Addr()), redisstore.Options{})
	_, err := s.Load(t.Context(), newID())
	refused(t, "without a password", err, redisstore.ErrDenied)
	_, err = redisclient.Open("redis://default:wrongsecret@" + r.Addr())
	if err == nil || strings.Contains(err.Error(), "wrongsecret") {
		t.Errorf("with a wrong password: error %v", err)
	}
}

// What a client that does not know Clusters gets from a node that has not the key.
func TestAClientMustFollowTheCluster(t *testing.T) {
	t.Parallel()
	addr := cluster.Get(t).Addrs()[0]
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	for name, c := range map[string]redisstore.Client{
		"rueidis":  rueidisTo(t, addr),
		"go-redis": goRedis{client},
	} {
		s := open(t, c, redisstore.Options{})
		var err error
		for range 100 { // a third of all keys are on this node
			if _, _, err = s.Claim(t.Context(), newID(), ask(semel.Hold)); err != nil {
				break
			}
		}
		refused(t, name, err, redisstore.ErrRedirected)
	}
}

func TestAClusterThatHasLostANodeIsDown(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s := open(t, rueidisTo(t, c.Addrs()...), redisstore.Options{})
	claim(t, s, newID(), ask(semel.Hold))
	if err := c.Nodes()[2].Kill(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := s.Load(ctx, newID())
		cancel()
		if errors.Is(err, redisstore.ErrClusterDown) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("with a node gone: error %v", err)
		}
	}
}

// A server that is not there is an error, soon after ctx ends.
func TestAServerThatIsGoneOrStandsStillIsAnError(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		r := startRedis(t)
		o := redisstore.Options{Prefix: prefix()}
		s := open(t, lib.connect(t, r.Addr()), o)
		hasty := s
		if lib.name == "go-redis" { // which heeds its own timeouts only, as it is set up by default
			hasty = open(t, goRedisWith(t, &redis.UniversalOptions{Addrs: []string{r.Addr()}}), o)
		}
		id, c := newID(), ask(semel.Hold)
		rec := claim(t, s, id, c)
		if err := r.Pause(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, _, err := hasty.Settle(ctx, id, rec.Owner(), done("lost")); err == nil {
			t.Error("a server that stands still has settled")
		}
		if err := r.Resume(); err != nil {
			t.Fatal(err)
		}
		settle(t, s, id, rec.Owner(), done("lost"))
		if err := r.Kill(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := s.Claim(ctx, newID(), ask(semel.Hold)); err == nil {
			t.Error("a server that is gone has claimed")
		}
	})
}
