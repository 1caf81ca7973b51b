package faults

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/servers"
)

// long bounds what has to happen, so that a failure does not hang.
const long = 2 * time.Minute

// The tests wait for leases and servers most of the time, so more of them run at once than there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

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

// wait waits for c to be closed.
func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(long):
		t.Fatal("waited in vain")
	}
}
