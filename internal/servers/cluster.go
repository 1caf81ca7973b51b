//go:build unix

package servers

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	slots     = 16_384          // of every Redis Cluster
	meetAgain = 5 * time.Second // after which nodes that have not met are told of each other again
)

// A RedisCluster is a Redis Cluster of primaries that share the slots evenly. Its methods are about all nodes at once.
type RedisCluster struct {
	nodes []*Redis
}

var _ Server = (*RedisCluster)(nil)

// NewRedisCluster starts so many nodes and returns when each of them says that the cluster is complete.
func NewRedisCluster(nodes int) (*RedisCluster, error) {
	c := &RedisCluster{}
	for range nodes {
		r, err := NewRedis("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.nodes = append(c.nodes, r)
	}
	if err := errors.Join(c.join(), c.complete()); err != nil {
		return nil, errors.Join(fmt.Errorf("start a Redis Cluster: %w", err), c.Close())
	}
	return c, nil
}

// Nodes returns the cluster's servers, each to be hurt by itself. They are closed with the cluster.
func (c *RedisCluster) Nodes() []*Redis { return c.nodes }

// Addrs returns the nodes' hosts and ports.
func (c *RedisCluster) Addrs() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// join gives each node its slots, and tells it of those before it. It would come to know them from one, but slowly.
func (c *RedisCluster) join() error {
	for i, n := range c.nodes {
		add := []string{"ADDSLOTS"}
		for s := slots * i / len(c.nodes); s < slots*(i+1)/len(c.nodes); s++ {
			add = append(add, strconv.Itoa(s))
		}
		if err := errors.Join(n.cluster(add...), n.cluster("SET-CONFIG-EPOCH", strconv.Itoa(i+1)), c.meet(i)); err != nil {
			return err
		}
	}
	return nil
}

// meet tells a node of those before it.
func (c *RedisCluster) meet(i int) error {
	var err error
	for _, other := range c.nodes[:i] {
		err = errors.Join(err, c.nodes[i].cluster("MEET", "127.0.0.1", strconv.Itoa(other.port)))
	}
	return err
}

func (r *Redis) cluster(args ...string) error {
	if _, err := redisDo(r.Addr(), patience, append([]string{"CLUSTER"}, args...)...); err != nil {
		return fmt.Errorf("CLUSTER %s: %w", args[0], err)
	}
	return nil
}

// complete waits until each node says that it knows all, and that every slot is served. A node forgets another that
// does not answer within the node timeout after it was told of it, as on a busy machine; so it is told again.
func (c *RedisCluster) complete() error {
	until, again := time.Now().Add(patience), time.Now().Add(meetAgain)
	for ; ; time.Sleep(10 * time.Millisecond) {
		var err error
		for _, n := range c.nodes {
			err = errors.Join(err, c.knowsAll(n))
		}
		if err == nil || time.Now().After(until) {
			return err
		}
		if time.Now().After(again) {
			for i := range c.nodes {
				c.meet(i) //nolint:errcheck // the next look tells
			}
			again = time.Now().Add(meetAgain)
		}
	}
}

func (c *RedisCluster) knowsAll(n *Redis) error {
	text, err := redisDo(n.Addr(), time.Second, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	info := readInfo(text)
	if info["cluster_state"] != "ok" || info["cluster_slots_ok"] != strconv.Itoa(slots) ||
		info["cluster_known_nodes"] != strconv.Itoa(len(c.nodes)) {
		return fmt.Errorf("node %s says: state %s, %s slots, %s nodes", n.Addr(), info["cluster_state"],
			info["cluster_slots_ok"], info["cluster_known_nodes"])
	}
	return nil
}

func (c *RedisCluster) each(do func(*Redis) error) error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, do(n))
	}
	return errors.Join(errs...)
}

// Kill kills every node.
func (c *RedisCluster) Kill() error { return c.each((*Redis).Kill) }

// Stop stops every node in order.
func (c *RedisCluster) Stop() error { return c.each((*Redis).Stop) }

// Start starts every node, and returns when the cluster is complete. Their data is gone; who has which slot is not.
func (c *RedisCluster) Start() error {
	if err := c.each((*Redis).Start); err != nil {
		return err
	}
	if err := c.complete(); err != nil {
		return fmt.Errorf("start a Redis Cluster: %w", err)
	}
	return nil
}

// Pause pauses every node.
func (c *RedisCluster) Pause() error { return c.each((*Redis).Pause) }

// Resume lets every node go on.
func (c *RedisCluster) Resume() error { return c.each((*Redis).Resume) }

// Close ends every node and removes its files.
func (c *RedisCluster) Close() error { return c.each((*Redis).Close) }
