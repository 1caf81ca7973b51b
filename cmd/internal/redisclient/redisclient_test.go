package redisclient

import (
	"strings"
	"testing"
)

func TestOptionsOfAURL(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		url     string
		addrs   string
		cluster bool
		tls     bool
		primary string // the name by which Sentinel knows it
		refused bool
		why     string
	}{
		{url: "redis://cache", addrs: "cache:6379", why: "the port has a default"},
		{url: "redis://u:p@10.0.0.1:7000/2", addrs: "10.0.0.1:7000", why: "user, password and database"},
		{url: "rediss://cache:6380", addrs: "cache:6380", tls: true, why: "encrypted"},
		{url: "redis+cluster://a:1?addr=b:2&addr=c:3", addrs: "a:1 b:2 c:3", cluster: true, why: "a Cluster"},
		{url: "rediss+cluster://a:1", addrs: "a:1", cluster: true, tls: true, why: "an encrypted Cluster"},
		{url: "redis://s1:26379?addr=s2:26379&master_set=mymaster", addrs: "s1:26379 s2:26379", primary: "mymaster", why: "Sentinel"},
		{url: "redis+cluster://a:1/2", refused: true, why: "a Cluster has one database"},
		{url: "redis+cluster://a:1?master_set=m", refused: true, why: "a Cluster has no Sentinel"},
		{url: "redis+sentinel://a:1", refused: true, why: "no such scheme"},
		{url: "unix:///tmp/redis.sock", refused: true, why: "no such scheme"},
		{url: "postgres://a:1", refused: true, why: "another database"},
		{url: "cache:6379", refused: true, why: "no scheme"},
		{url: "redis://u:topsecret@a:port", refused: true, why: "the port is no number"},
		{url: "redis://u:topsecret@a/x", refused: true, why: "the database is no number"},
		{url: "redis://u:topsecret%zz@a", refused: true, why: "malformed"},
		{url: "", refused: true, why: "empty"},
	} {
		o, cluster, err := options(row.url)
		if err != nil {
			if !row.refused || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("%s (%s): %v", row.url, row.why, err)
			}
			continue
		}
		if row.refused {
			t.Errorf("%s is accepted: %s", row.url, row.why)
			continue
		}
		if got := strings.Join(o.InitAddress, " "); got != row.addrs || cluster != row.cluster || (o.TLSConfig != nil) != row.tls ||
			o.Sentinel.MasterSet != row.primary || o.ForceSingleClient != (!row.cluster && row.primary == "") {
			t.Errorf("%s (%s): addresses %q, cluster %t, TLS %t, primary %q", row.url, row.why, got, cluster, o.TLSConfig != nil, o.Sentinel.MasterSet)
		}
	}
}
