package faults

import (
	"testing"
	"time"

	"github.com/semelhq/semel/internal/servers"
)

// long bounds what has to happen, so that a failure does not hang.
const long = time.Minute

func redis(t *testing.T, args ...string) *servers.Redis {
	t.Helper()
	r, err := servers.NewRedis(args...)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func proxyTo(t *testing.T, addr string) *Proxy {
	t.Helper()
	p, err := New(addr)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
