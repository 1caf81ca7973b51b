//go:build unix

package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// long bounds what has to happen, so that a failure does not hang.
const long = time.Minute

// leftBehind, set in its environment, makes the test program start servers and be killed.
const leftBehind = "SEMEL_SERVERS_LEFT_BEHIND"

func TestMain(m *testing.M) {
	if os.Getenv(leftBehind) != "" {
		leaveBehind()
	}
	os.Exit(m.Run())
}

// leaveBehind starts two servers, says where they are, and waits to be killed.
func leaveBehind() {
	p, err := NewPostgres(PostgresOptions{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	r, err := NewRedis()
	if err == nil {
		err = r.Pause()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	b, err := base()
	fmt.Println(p.Addr(), r.Addr(), b.dir, err)
	time.Sleep(long)
	os.Exit(1)
}

// started returns a server that ends with the test.
func started[S Server](t *testing.T, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func postgres(t *testing.T, o PostgresOptions) *Postgres {
	t.Helper()
	p, err := NewPostgres(o)
	return started(t, p, err)
}

func redis(t *testing.T, args ...string) *Redis {
	t.Helper()
	r, err := NewRedis(args...)
	return started(t, r, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that nobody listens at an address.
func refused(t *testing.T, addr string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, long)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial %s: %v, want refused", addr, err)
	}
}

func connect(t *testing.T, addr string) *pgConn {
	t.Helper()
	c, err := dialPG(addr, "postgres", long)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// rows returns what a query returns.
func (c *pgConn) rows(t *testing.T, sql string) [][]string {
	t.Helper()
	rows, err := c.query(sql, long)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

// value checks the one value that a query returns.
func (c *pgConn) value(t *testing.T, sql, want string) {
	t.Helper()
	if got := c.rows(t, sql); !slices.EqualFunc(got, [][]string{{want}}, slices.Equal) {
		t.Errorf("%s: %q, want %q", sql, got, want)
	}
}

// command checks what a Redis replies.
func command(t *testing.T, addr, want string, args ...string) {
	t.Helper()
	got, err := redisDo(addr, long, args...)
	if err != nil || got != want {
		t.Errorf("%v: %q, %v, want %q", args, got, err, want)
	}
}

// silent checks that do does not return while the server is paused, and does once it goes on.
func silent(t *testing.T, s Server, do func() error) {
	t.Helper()
	must(t, s.Pause())
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		t.Errorf("answered while it was paused: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, s.Resume())
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("after it went on: %v", err)
		}
	case <-time.After(long):
		t.Error("no answer after it went on")
	}
}

// eventually waits until check finds nothing wrong.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	for until := time.Now().Add(long); ; time.Sleep(10 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}
