package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/redisstore"
)

// What an operation costs, for docs/scale.md: CPU time, which a busy machine changes less than time, and bytes.
const (
	costOperations = 40_000
	costCallers    = 64
)

// A costed store says what it has used so far.
type costed struct {
	name   string
	store  driver.Store
	server func() (time.Duration, error) // CPU time of its server; nil if it has none
	rests  func() (int64, error)         // bytes that it takes
	writes func() (int64, error)         // bytes written to its log; nil if not known
	close  func()
}

func costs(ctx context.Context) error {
	fmt.Printf("%d operations of %d callers; an answer of 200 bytes with two headers; CPU time an operation\n\n", costOperations, costCallers)
	fmt.Println("| store | first execution, CPU of the process | of the server | repeat, of the process | of the server | bytes at rest | bytes of log |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- |")
	for _, open := range []func(context.Context) (*costed, error){costOfSQLite, costOfPostgres, costOfRedis} {
		c, err := open(ctx)
		if err != nil {
			return err
		}
		line, err := c.measure(ctx)
		c.close()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Println(line)
	}
	return nil
}

func (c *costed) measure(ctx context.Context) (string, error) {
	ids := make([]driver.ID, costOperations)
	claims := make([]driver.Claim, costOperations)
	for i := range ids {
		for at := 0; at < len(ids[i]); at += len(driver.Token{}) {
			token := driver.NewToken()
			copy(ids[i][at:], token[:])
		}
		claims[i] = driver.Claim{
			Fingerprint: driver.Fingerprint{Raw: driver.NewToken(), Canonical: driver.NewToken()}, Token: driver.NewToken(), Retention: keepTime,
			Operation: "POST /payments", Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
		}
	}
	rested, err := c.rests()
	if err != nil {
		return "", err
	}
	var wrote int64
	if c.writes != nil {
		if wrote, err = c.writes(); err != nil {
			return "", err
		}
	}
	answer := &driver.Response{
		Status: 201, Body: []byte(strings.Repeat("x", 200)),
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/0190f4d2"}},
	}
	first, err := c.time(func(i int) error {
		rec, owned, err := c.store.Claim(ctx, ids[i], claims[i])
		if err == nil && owned {
			_, owned, err = c.store.Settle(ctx, ids[i], rec.Owner(), driver.Outcome{State: driver.Done, Response: answer})
		}
		if err == nil && !owned {
			err = errors.New("a new operation is not owned")
		}
		return err
	})
	if err != nil {
		return "", err
	}
	rests, err := c.rests()
	if err != nil {
		return "", err
	}
	log := "–"
	if c.writes != nil {
		now, err := c.writes()
		if err != nil {
			return "", err
		}
		log = strconv.FormatInt((now-wrote)/costOperations, 10)
	}
	repeat, err := c.time(func(i int) error {
		again := claims[i]
		again.Token = driver.NewToken()
		rec, owned, err := c.store.Claim(ctx, ids[i], again)
		if err == nil && (owned || rec.Response == nil) {
			err = errors.New("a repeat has no answer")
		}
		return err
	})
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %d | %s |", c.name, first[0], first[1], repeat[0], repeat[1], (rests-rested)/costOperations, log), err
}

// time returns the CPU time of one call of f, on both sides.
func (c *costed) time(f func(i int) error) (each [2]string, err error) {
	own, server, err := c.used()
	if err != nil {
		return each, err
	}
	var next atomic.Int64
	var work sync.WaitGroup
	errs := make(chan error, costCallers)
	for range costCallers {
		work.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= costOperations {
					return
				}
				if err := f(int(i)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	work.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return each, err
	}
	nowOwn, nowServer, err := c.used()
	micro := func(d time.Duration) string { return fmt.Sprintf("%d µs", (d / costOperations).Microseconds()) }
	each = [2]string{micro(nowOwn - own), "–"}
	if c.server != nil {
		each[1] = micro(nowServer - server)
	}
	return each, err
}

func (c *costed) used() (own, server time.Duration, err error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	own = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if c.server != nil {
		server, err = c.server()
	}
	return own, server, err
}

func costOfSQLite(ctx context.Context) (*costed, error) {
	f, err := newSQLiteFile(ctx)
	if err != nil {
		return nil, err
	}
	return &costed{name: "SQLite", store: f.Store, close: f.close, rests: func() (int64, error) {
		if _, err := f.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			return 0, err
		}
		info, err := os.Stat(filepath.Join(f.dir, "semel.db"))
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	}}, nil
}

func costOfPostgres(ctx context.Context) (*costed, error) {
	p, err := newPostgresServer(ctx)
	if err != nil {
		return nil, err
	}
	s, err := pgstore.Open(ctx, p.pool, pgstore.Options{})
	if err != nil {
		p.close()
		return nil, err
	}
	var postmaster int
	err = p.pool.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&postmaster)
	if err == nil {
		_, postmaster, err = procTime(postmaster)
	}
	number := func(query string) func() (n int64, err error) {
		return func() (n int64, err error) { return n, p.pool.QueryRow(ctx, query, pgx.QueryExecModeExec).Scan(&n) }
	}
	return &costed{
		name: "PostgreSQL", store: s, close: func() { s.Close(); p.close() }, //nolint:errcheck // a temporary server
		server: func() (time.Duration, error) { return treeTime(postmaster) },
		rests:  number("SELECT pg_total_relation_size('semel.records') + pg_total_relation_size('semel.answers_default')"),
		writes: number("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"),
	}, err
}

func costOfRedis(ctx context.Context) (*costed, error) {
	r, err := newRedisServer()
	if err != nil {
		return nil, err
	}
	s, err := redisstore.Open(ctx, rueidisClient{r.client}, redisstore.Options{})
	if err != nil {
		r.close()
		return nil, err
	}
	info := func(section string, names ...string) (sum float64, err error) {
		text, err := r.client.Do(ctx, r.client.B().Info().Section(section).Build()).ToString()
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			for _, wanted := range names {
				if name == wanted && err == nil {
					var n float64
					n, err = strconv.ParseFloat(value, 64)
					sum += n
				}
			}
		}
		return sum, err
	}
	return &costed{
		name: "Redis", store: s, close: r.close,
		server: func() (time.Duration, error) {
			s, err := info("cpu", "used_cpu_sys", "used_cpu_user")
			return time.Duration(s * float64(time.Second)), err
		},
		rests: func() (int64, error) { n, err := info("memory", "used_memory"); return int64(n), err },
	}, nil
}

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// procTime returns the CPU time of a process and of the children that it has waited for, and its parent. Linux has it.
func procTime(pid int) (used time.Duration, parent int, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("CPU time of the server: %w", err)
	}
	// The name, in brackets, may hold anything. Behind it are the state, the parent, and from the twelfth on four times.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 15 {
		return 0, 0, errors.New("CPU time of the server: /proc is not as expected")
	}
	parent, err = strconv.Atoi(fields[1])
	for _, f := range fields[11:15] {
		n, _ := strconv.Atoi(f) //nolint:errcheck // the kernel writes numbers
		used += time.Duration(n) * tick
	}
	return used, parent, err
}

// treeTime returns the CPU time of a process and its children.
func treeTime(root int) (sum time.Duration, err error) {
	if sum, _, err = procTime(root); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		pid, notPID := strconv.Atoi(e.Name())
		if notPID != nil {
			continue
		}
		if used, parent, err := procTime(pid); err == nil && parent == root {
			sum += used
		}
	}
	return sum, err
}
