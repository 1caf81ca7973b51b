package redisclient

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// topologyRefresh is how often the client asks Sentinel, or a Cluster, who is the primary, in case that it has missed
// it.
const topologyRefresh = 5 * time.Second

// Open connects to what the URL names:
//
//	redis://[user:password@]host[:port][/database]          one server
//	redis://[user:password@]host[:port]?master_set=NAME     the primary of that name, by the Sentinel there
//	redis+cluster://[user:password@]host[:port]             a Cluster
//
// More nodes or Sentinels are named by ?addr=host:port, each. With rediss in place of redis connections are encrypted,
// by TLS 1.2 or later, and the server's certificate is checked against the system's authorities. Errors do not show the
// URL, which may hold a password.
func Open(rawURL string) (*Client, error) {
	o, cluster, err := options(rawURL)
	if err != nil {
		return nil, fmt.Errorf("open Redis: %w", err)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("open Redis: %w", err)
	}
	if cluster && client.Mode() != rueidis.ClientModeCluster {
		client.Close()
		return nil, errors.New("open Redis: the server is not in a Cluster: want redis://")
	}
	return New(client), nil
}

func options(rawURL string) (o rueidis.ClientOption, cluster bool, err error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	scheme, suffix, _ := strings.Cut(scheme, "+")
	cluster = suffix == "cluster"
	if !ok || scheme != "redis" && scheme != "rediss" || suffix != "" && !cluster {
		return o, false, errors.New("the URL must begin with redis://, rediss://, redis+cluster:// or rediss+cluster://")
	}
	o, err = rueidis.ParseURL(scheme + "://" + rest)
	var bad *url.Error
	switch {
	case errors.As(err, &bad):
		return o, false, errors.New("the URL is malformed") // the cause may quote its password
	case err != nil:
		return o, false, err
	case cluster && (o.SelectDB != 0 || o.Sentinel.MasterSet != ""):
		return o, false, errors.New("a Cluster has one database and no Sentinel")
	}
	o.DisableCache = true // nothing is cached in this process, and RESP3 not needed
	o.ForceSingleClient = !cluster && o.Sentinel.MasterSet == ""
	o.Sentinel.Username, o.Sentinel.Password, o.Sentinel.TLSConfig = o.Username, o.Password, o.TLSConfig
	o.Sentinel.TopologyRefreshInterval = topologyRefresh
	o.ClusterOption.ShardsRefreshInterval = topologyRefresh
	return o, cluster, nil
}
