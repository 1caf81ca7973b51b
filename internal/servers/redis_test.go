//go:build unix

package servers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestRedisIsEmptyAfterARestart(t *testing.T) {
	t.Parallel()
	r := redis(t)
	addr := r.Addr()
	for _, end := range []func() error{r.Kill, r.Stop} {
		command(t, addr, "OK", "SET", "k", "v")
		command(t, addr, "v", "GET", "k")
		must(t, end())
		refused(t, addr)
		must(t, r.Start())
		if r.Addr() != addr {
			t.Errorf("it moved from %s to %s", addr, r.Addr())
		}
		command(t, addr, "", "GET", "k")
	}
}

func TestRedisKeepsWhatItIsToldToKeep(t *testing.T) {
	t.Parallel()
	r := redis(t, "--appendonly", "yes", "--appendfsync", "always")
	for _, end := range []func() error{r.Kill, r.Stop} {
		command(t, r.Addr(), "OK", "SET", "k", "v")
		must(t, end())
		must(t, r.Start())
		command(t, r.Addr(), "v", "GET", "k")
	}
}

func TestPausedRedisIsSilent(t *testing.T) {
	t.Parallel()
	r := redis(t)
	c, err := dialRedis(r.Addr(), long)
	must(t, err)
	defer c.Close()
	silent(t, r, func() error {
		_, err := c.do("SET", "k", "v")
		return err
	})
	silent(t, r, func() error {
		_, err := redisDo(r.Addr(), long, "GET", "k")
		return err
	})
}

func TestReplicaFollows(t *testing.T) {
	t.Parallel()
	primary, replica, err := NewRedisPair()
	started(t, primary, err)
	started(t, replica, err)
	c, err := dialRedis(primary.Addr(), long)
	must(t, err)
	defer c.Close()
	for _, args := range [][]string{{"SET", "k", "v"}, {"WAIT", "1", "60000"}} { // WAIT is about its connection's writes
		if got, err := c.do(args...); err != nil || got != "OK" && got != "1" {
			t.Fatalf("%v: %q, %v", args, got, err)
		}
	}
	command(t, replica.Addr(), "v", "GET", "k")
	var refused redisError
	if _, err := redisDo(replica.Addr(), long, "SET", "k", "w"); !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("write to the replica: %v", err)
	}
	must(t, primary.Kill())
	command(t, replica.Addr(), "v", "GET", "k")
	must(t, replica.Kill())
	must(t, primary.Start())
	command(t, primary.Addr(), "OK", "SET", "k", "x")
	must(t, replica.Start()) // waits for the link
	command(t, replica.Addr(), "x", "GET", "k")
}

func TestPromotedReplicaServes(t *testing.T) {
	t.Parallel()
	primary, replica, err := NewRedisPair()
	started(t, primary, err)
	started(t, replica, err)
	must(t, primary.Pause())
	command(t, replica.Addr(), "OK", "REPLICAOF", "NO", "ONE")
	command(t, replica.Addr(), "OK", "SET", "k", "v")
	must(t, primary.Close())
}

func TestEveryClusterNodeAnswers(t *testing.T) {
	t.Parallel()
	c, err := NewRedisCluster(3)
	started(t, c, err)
	if len(c.Addrs()) != 3 {
		t.Fatalf("addresses: %v", c.Addrs())
	}
	clusterServes(t, c)
	for _, end := range []func() error{c.Kill, c.Stop} {
		must(t, end())
		for _, addr := range c.Addrs() {
			refused(t, addr)
		}
		must(t, c.Start())
		clusterServes(t, c)
	}
}

// clusterServes checks that each key has one node that takes it, and that the others know it; and that each node has
// some.
func clusterServes(t *testing.T, c *RedisCluster) {
	t.Helper()
	taken := map[string]int{}
	for i := range 30 {
		key := fmt.Sprintf("key-%d", i)
		var owner string
		var moved []string
		for _, addr := range c.Addrs() {
			switch _, err := redisDo(addr, long, "SET", key, "v"); {
			case err == nil && owner == "":
				owner = addr
				taken[addr]++
			case err != nil && strings.HasPrefix(err.Error(), "MOVED "):
				moved = append(moved, strings.Fields(err.Error())[2])
			default:
				t.Errorf("%s at %s: %v", key, addr, err)
			}
		}
		if !slices.Equal(moved, []string{owner, owner}) {
			t.Errorf("%s is at %s, and said to be at %v", key, owner, moved)
		}
	}
	if len(taken) != 3 {
		t.Errorf("keys by node: %v", taken)
	}
}

func TestAClusterNodeIsHurtByItself(t *testing.T) {
	t.Parallel()
	c, err := NewRedisCluster(3)
	started(t, c, err)
	nodes := c.Nodes()
	must(t, nodes[2].Kill())
	command(t, nodes[0].Addr(), "PONG", "PING")
	refused(t, nodes[2].Addr())
	must(t, nodes[2].Start())
	must(t, c.complete())
	silent(t, c, func() error {
		_, err := redisDo(nodes[1].Addr(), long, "PING")
		return err
	})
}
