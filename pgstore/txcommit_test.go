package pgstore

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

// A commit that fails leaves nothing, and it is certain that it does.
func TestCase09_ACommitThatFailsIsRolledBack(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		exec(s.t, s.store, `CREATE TABLE {schema}.lines (
			"order" bigint REFERENCES {schema}.orders (id) DEFERRABLE INITIALLY DEFERRED)`)
		broken := true
		h := s.guard(driver.Hold).Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
			if !broken {
				return nil
			}
			_, err := tx.Exec(ctx, s.sql("INSERT INTO {schema}.lines VALUES (0)"))
			return err
		}, func(err error) {
			if broken != errors.Is(err, driver.ErrRolledBack) {
				s.t.Errorf("Tx: %v", err)
			}
		}))
		for range 2 {
			if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable || s.orders() != 0 {
				s.t.Errorf("answered %d, with %d orders", w.Code, s.orders())
			}
		}
		broken = false
		if w := serveKey(h, "k"); w.Code != 201 || s.orders() != 1 {
			s.t.Errorf("the next try: answered %d, with %d orders", w.Code, s.orders())
		}
		s.idle()
	})
}

// A commit whose reply was lost has happened or not. Either way the answer, and that of a repeat, agree with it, also
// if the server decides only when the connection has been gone for a while.
func TestCase09_ACommitWithoutAReply(t *testing.T) {
	t.Parallel()
	for _, m := range eachModes {
		for _, c := range []struct {
			name      string
			held      bool
			committed bool
		}{
			{"committed", false, true},
			{"committed after a while", true, true},
			{"rolled back after a while", true, false},
		} {
			t.Run(m.name+", "+c.name, func(t *testing.T) {
				t.Parallel()
				target := server.URL()
				if m.pooled {
					target = bouncer.URL()
				}
				proxy, url := newCutter(t, target)
				s := newShop(t, m, url, Options{})
				h := s.guard(driver.Hold).Wrap(s.ordering(nil, nil))
				serveKey(h, "before")
				cut := &cut{commit: c.committed, gone: make(chan string)}
				if c.held {
					cut.ready = s.settling
				}
				proxy.armed.Store(cut)
				w := serveKey(h, "k")
				<-cut.gone
				if !c.committed {
					if w.Code != http.StatusServiceUnavailable || s.orders() != 1 {
						t.Errorf("answered %d, with %d orders", w.Code, s.orders())
					}
					w = serveKey(h, "k")
				}
				if w.Code != 201 || s.orders() != 2 || replayed(w) {
					t.Errorf("answered %d, with %d orders", w.Code, s.orders())
				}
				if w := serveKey(h, "k"); w.Code != 201 || s.orders() != 2 || !replayed(w) {
					t.Errorf("the repeat: %d, with %d orders", w.Code, s.orders())
				}
				s.idle()
			})
		}
	}
}

// settling returns when the run under way is settled in its transaction, which has not committed.
func (s *shop) settling() {
	free := func() bool {
		return !s.oneCommit && value[int64](s.t, s.store, `SELECT count(*) FROM (
			SELECT FROM {schema}.records WHERE state = 1 FOR UPDATE SKIP LOCKED) r`) > 0
	}
	for free() {
		time.Sleep(time.Millisecond)
	}
}

// A transaction without an operation whose commit gets no reply is nothing to be certain about.
func TestACommitOfAPlainTransactionWithoutAReply(t *testing.T) {
	t.Parallel()
	proxy, url := newCutter(t, server.URL())
	s := newShop(t, modes[0], url, Options{})
	cut := &cut{gone: make(chan string)}
	proxy.armed.Store(cut)
	err := s.tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error { return s.order(ctx, tx, "hat") })
	if err == nil || errors.Is(err, driver.ErrRolledBack) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("Tx: %v", err)
	}
	<-cut.gone
	if s.orders() != 1 {
		t.Error("the commit was executed, but there is no order")
	}
	s.idle()
}

// Two transactions that each read what the other writes can't both commit; nor can two that wait for each other.
func TestCase09_WhatCouldNotBeSerializedLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		mode mode
		kind error
		sql  []string // by each of two
	}{
		{"write skew", mode{level: pgx.Serializable}, ErrSerialization, []string{
			"INSERT INTO {schema}.stock SELECT count(*) FROM {schema}.stock",
			"INSERT INTO {schema}.stock SELECT count(*) FROM {schema}.stock",
		}},
		{"lost update", mode{level: pgx.RepeatableRead}, ErrSerialization, []string{
			"SELECT 1; UPDATE {schema}.stock SET n = n + 1 WHERE n = 1",
			"SELECT 1; UPDATE {schema}.stock SET n = n + 1 WHERE n = 1",
		}},
		{"deadlock", mode{}, ErrDeadlock, []string{
			"UPDATE {schema}.stock SET n = 10 WHERE n = 1|UPDATE {schema}.stock SET n = 20 WHERE n = 2",
			"UPDATE {schema}.stock SET n = 20 WHERE n = 2|UPDATE {schema}.stock SET n = 10 WHERE n = 1",
		}},
		{"deadlock in one-commit mode", mode{oneCommit: true}, ErrDeadlock, []string{
			"UPDATE {schema}.stock SET n = 10 WHERE n = 1|UPDATE {schema}.stock SET n = 20 WHERE n = 2",
			"UPDATE {schema}.stock SET n = 20 WHERE n = 2|UPDATE {schema}.stock SET n = 10 WHERE n = 1",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, c.mode, server.URL(), Options{})
			exec(t, s.store, "CREATE TABLE {schema}.stock (n bigint)")
			exec(t, s.store, "INSERT INTO {schema}.stock VALUES (1), (2)")
			g := s.guard(driver.Hold)
			steps := newMeeting(2)
			codes, failures := make(chan int, 2), make(chan error, 2)
			for i, sql := range c.sql {
				h := g.Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "SELECT 1"); err != nil { // the snapshot is taken
						return err
					}
					steps.meet()
					for _, part := range strings.Split(s.sql(sql), "|") {
						if _, err := tx.Exec(ctx, part); err != nil {
							return err
						}
						if c.kind == ErrDeadlock || c.name == "write skew" {
							steps.meetOnce(i)
						}
					}
					return nil
				}, func(err error) { failures <- err }))
				go func() { codes <- serveKey(h, "k"+strconv.Itoa(i)).Code }()
			}
			failed := 0
			for range 2 {
				if err := <-failures; err != nil {
					failed++
					if !errors.Is(interpretError(err), c.kind) {
						t.Errorf("Tx: %v, want %v", err, c.kind)
					}
				}
			}
			sum := <-codes + <-codes
			if failed != 1 || sum != 201+503 || s.orders() != 1 {
				t.Errorf("%d failed, the answers' sum is %d, %d orders", failed, sum, s.orders())
			}
			s.idle()
		})
	}
}
