//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestPostgresKeepsItsDataAndAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		o    PostgresOptions
		end  func(*Postgres) error
	}{
		{"killed", PostgresOptions{}, func(p *Postgres) error { return p.Kill() }},
		{"killed, durable", PostgresOptions{Durable: true}, func(p *Postgres) error { return p.Kill() }},
		{"killed while paused", PostgresOptions{}, func(p *Postgres) error { return errors.Join(p.Pause(), p.Kill()) }},
		{"stopped", PostgresOptions{}, func(p *Postgres) error { return p.Stop() }},
		{"stopped while paused", PostgresOptions{}, func(p *Postgres) error { return errors.Join(p.Pause(), p.Stop()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := postgres(t, tc.o)
			addr, url := p.Addr(), p.URL()
			c := connect(t, addr)
			c.rows(t, "create table kept (n int)")
			for range 3 {
				c.rows(t, "insert into kept values (1)")
			}
			must(t, tc.end(p))
			refused(t, addr)
			if _, err := c.query("select 1", long); err == nil {
				t.Error("a connection outlived the server")
			}
			must(t, p.Start())
			if p.Addr() != addr || p.URL() != url {
				t.Errorf("it moved from %s to %s", url, p.URL())
			}
			connect(t, addr).value(t, "select count(*) from kept", "3")
		})
	}
}

func TestKilledPostgresLeavesNoProcess(t *testing.T) {
	t.Parallel()
	p := postgres(t, PostgresOptions{})
	busy := connect(t, p.Addr())
	ended := make(chan error, 1)
	go func() {
		_, err := busy.query("select pg_sleep(100)", long)
		ended <- err
	}()
	c := connect(t, p.Addr())
	eventually(t, func() error {
		if n := c.rows(t, "select 1 from pg_stat_activity where query = 'select pg_sleep(100)'"); len(n) != 1 {
			return errors.New("the query has not begun")
		}
		return nil
	})
	pids, err := descendants(p.pid)
	must(t, err)
	if len(pids) < 4 {
		t.Fatalf("%d processes, want a postmaster, its helpers and two backends", len(pids))
	}
	must(t, p.Kill())
	all, err := processes(pids...)
	must(t, err)
	for _, left := range all {
		if left.state != 'Z' {
			t.Errorf("process %d lives on: %c", left.pid, left.state)
		}
	}
	if err := <-ended; err == nil {
		t.Error("the query was answered")
	}
}

// What a backend was asked for while it was paused comes when it goes on, on the same connection.
func TestPausedPostgresIsSilent(t *testing.T) {
	t.Parallel()
	p := postgres(t, PostgresOptions{})
	c := connect(t, p.Addr())
	silent(t, p, func() error {
		_, err := c.query("select 1", long)
		return err
	})
	silent(t, p, func() error {
		another, err := dialPG(p.Addr(), "postgres", long)
		if err != nil {
			return err
		}
		return another.Close()
	})
}

// A statement that runs when the pause comes does not run on in it.
func TestPauseStopsRunningStatements(t *testing.T) {
	t.Parallel()
	p := postgres(t, PostgresOptions{})
	c := connect(t, p.Addr())
	silent(t, p, func() error {
		_, err := c.query("select count(*) from generate_series(1, 2000000)", long)
		return err
	})
	pids, err := freeze(p.pid)
	must(t, err)
	eventually(t, func() error { // one that waits for its turn stops when that comes
		all, err := processes(pids...)
		must(t, err)
		for _, each := range all {
			if each.state != 'T' {
				return fmt.Errorf("process %d is not stopped: %c", each.pid, each.state)
			}
		}
		return nil
	})
	p.frozen = pids
	must(t, p.Resume())
}

func TestPostgresInRecoveryIsReadOnly(t *testing.T) {
	t.Parallel()
	p := postgres(t, PostgresOptions{})
	connect(t, p.Addr()).rows(t, "create table kept (n int)")
	must(t, p.Stop())
	must(t, p.StartInRecovery())
	c := connect(t, p.Addr())
	c.value(t, "select pg_is_in_recovery()", "t")
	c.value(t, "select count(*) from kept", "0")
	var refused *pgError
	if _, err := c.query("insert into kept values (1)", long); !errors.As(err, &refused) || refused.code != "25006" {
		t.Errorf("insert: %v, want read_only_sql_transaction", err)
	}
	must(t, p.Kill())
	must(t, p.Start())
	c = connect(t, p.Addr())
	c.value(t, "select pg_is_in_recovery()", "f")
	c.rows(t, "insert into kept values (1)")
}

func TestPostgresRunsWithItsSettings(t *testing.T) {
	t.Parallel()
	fast := connect(t, postgres(t, PostgresOptions{Settings: map[string]string{
		"application_name": "it's me", "max_connections": "17", "log_line_prefix": `\%m`,
	}}).Addr())
	fast.value(t, "show fsync", "off")
	fast.value(t, "show full_page_writes", "on")
	fast.value(t, "show synchronous_commit", "on")
	fast.value(t, "show application_name", "it's me")
	fast.value(t, "show max_connections", "17")
	fast.value(t, "show log_line_prefix", `\%m`)
	durable := connect(t, postgres(t, PostgresOptions{Durable: true}).Addr())
	durable.value(t, "show fsync", "on")
	durable.value(t, "show full_page_writes", "on")
	durable.value(t, "show max_connections", "200")
	fast.rows(t, "create table mine (n int)") // of this one only
	durable.rows(t, "create table mine (n int)")
}

func TestAFailedStartSaysWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	_, err := NewPostgres(PostgresOptions{Settings: map[string]string{"shared_buffers": "plenty"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers": "plenty"`) {
		t.Errorf("got %v", err)
	}
}

// The system keeps shared memory that nobody frees.
func TestClosedPostgresLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		p, err := NewPostgres(PostgresOptions{})
		must(t, err)
		status, err := p.status()
		must(t, err)
		segment := strings.Fields(status[6])[1]
		if !sharedMemory(t)[segment] {
			t.Fatalf("there is no segment %s", segment)
		}
		if killed {
			must(t, p.Kill())
		}
		must(t, p.Close())
		if sharedMemory(t)[segment] {
			t.Errorf("killed %t: a segment of shared memory is left", killed)
		}
		if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("killed %t: a folder is left: %v", killed, err)
		}
		refused(t, p.Addr())
	}
}

// sharedMemory returns the ids of the system's segments.
func sharedMemory(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.Command("ipcs", "-m").Output()
	must(t, err)
	ids := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			ids[fields[1]] = true
		}
	}
	return ids
}

func TestPgBouncerServes(t *testing.T) {
	t.Parallel()
	p := postgres(t, PostgresOptions{})
	b, err := NewPgBouncer(p, PgBouncerOptions{PoolSize: 1})
	started(t, b, err)
	if b.URL() == p.URL() || !strings.Contains(b.URL(), b.Addr()) {
		t.Errorf("it is at %s", b.URL())
	}
	one, two := connect(t, b.Addr()), connect(t, b.Addr())
	pid := one.rows(t, "select pg_backend_pid()")[0][0]
	two.value(t, "select pg_backend_pid()", pid) // one session for both
	one.rows(t, "begin")
	blocked := make(chan error, 1)
	go func() {
		_, err := two.query("select 1", long)
		blocked <- err
	}()
	one.value(t, "select pg_backend_pid()", pid)
	select {
	case err := <-blocked:
		t.Errorf("the session of a transaction served another client: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	one.rows(t, "commit")
	must(t, <-blocked)
}

func TestPgBouncerOutlivesFaults(t *testing.T) {
	t.Parallel()
	p := postgres(t, PostgresOptions{})
	b, err := NewPgBouncer(p, PgBouncerOptions{})
	started(t, b, err)
	seen := map[string]bool{}
	for range 20 { // as many as it holds unless told otherwise
		c := connect(t, b.Addr())
		c.rows(t, "begin")
		seen[c.rows(t, "select pg_backend_pid()")[0][0]] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d sessions, want 20", len(seen))
	}
	silent(t, b, func() error {
		c, err := dialPG(b.Addr(), "postgres", long)
		if err != nil {
			return err
		}
		return c.Close()
	})
	for _, end := range []func() error{b.Kill, b.Stop} {
		must(t, end())
		refused(t, b.Addr())
		must(t, b.Start())
		connect(t, b.Addr()).value(t, "select 1", "1")
	}
	must(t, p.Kill())
	must(t, p.Start())
	eventually(t, func() error { // it notices that its sessions are dead when it uses them
		c, err := dialPG(b.Addr(), "postgres", long)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.query("select 1", long)
		return err
	})
}
