package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

func TestField22_ListIsInOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	for i := range 7 { // the first one is lost
		s.pay(fmt.Sprint("account-", i%3), fmt.Sprint("order-", i))
	}
	list := func(args ...string) (views []operationView) {
		t.Helper()
		_, stdout, _ := s.keys(append([]string{"list", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(stdout), &views); err != nil {
			t.Fatal(err)
		}
		return views
	}
	newest := func(a, b operationView) int { return b.Started.Compare(*a.Started) }
	oldest := func(a, b operationView) int { return a.Started.Compare(*b.Started) }
	for _, c := range []struct {
		args  []string
		order func(a, b operationView) int
	}{
		{nil, newest},
		{[]string{"--order", "newest"}, newest},
		{[]string{"--order", "oldest"}, oldest},
		{[]string{"--order", "id"}, func(a, b operationView) int { return cmp.Compare(a.ID, b.ID) }},
	} {
		all := list(c.args...)
		if len(all) != 7 || !slices.IsSortedFunc(all, c.order) {
			t.Errorf("%v: not in order, %v", c.args, all)
		}
		for i, v := range list(append(c.args, "--limit", "3")...) {
			if i >= 3 || v.ID != all[i].ID {
				t.Errorf("%v --limit 3 does not list the first three: %s", c.args, v.ID)
			}
		}
		lines := strings.Split(s.must(append([]string{"list"}, c.args...)...), "\n")
		for i, v := range all {
			if !strings.HasPrefix(lines[i+1], v.ID) {
				t.Errorf("%v: the table has another order:\n%s", c.args, strings.Join(lines, "\n"))
			}
		}
	}

	third := list("--order", "oldest")[2]
	for since, want := range map[string]int{
		"1h":                                   7,
		third.Started.Format(time.RFC3339Nano): 5,
		third.Started.Add(time.Hour).Format(time.RFC3339Nano):                           0,
		third.Started.In(time.FixedZone("", 7200)).Add(-time.Hour).Format(time.RFC3339): 7,
		"1ns": 0,
	} {
		if got := list("--since", since); len(got) != want {
			t.Errorf("--since %s lists %d, want %d", since, len(got), want)
		}
	}
	if got := list("--since", "1h", "--state", "unknown"); len(got) != 1 {
		t.Errorf("--since with --state lists %d", len(got))
	}
}

// A store has more than fits into memory; a listing keeps what comes first, in whatever order it comes.
func TestField22_AListingKeepsTheFirstAndNoMore(t *testing.T) {
	t.Parallel()
	for name, order := range orders {
		for _, limit := range []int{0, 1, 5, 100, 200} {
			kept := listing{order: order, limit: limit}
			var all []*listed
			for _, n := range rand.Perm(100) {
				id := semel.Identify(nil, semel.KindHTTP, "acme", fmt.Sprint(n))
				rec := driver.Record{State: driver.Done, Started: driver.Time(1 + n/3)} // three at a time
				all = append(all, &listed{id, rec.Started, viewOf(id, &rec, false)})
				kept.add(id, &rec)
				if limit > 0 && len(kept.last.items) > limit {
					t.Fatalf("%s: it keeps %d, and its limit is %d", name, len(kept.last.items), limit)
				}
			}
			slices.SortFunc(all, order)
			if limit > 0 && limit < len(all) {
				all = all[:limit]
			}
			got := kept.sorted()
			if len(got) != len(all) || kept.total != 100 {
				t.Fatalf("%s, limit %d: it has %d of %d", name, limit, len(got), kept.total)
			}
			for i := range all {
				if got[i].ID != all[i].view.ID {
					t.Fatalf("%s, limit %d: %s stands at %d, want %s", name, limit, got[i].ID, i, all[i].view.ID)
				}
			}
		}
	}
}

// How long ago something was is told by the store's clock, from which this machine's may be away.
func TestField22_SinceGoesByTheStoresClock(t *testing.T) {
	t.Parallel()
	now := driver.TimeOf(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC))
	for _, c := range []struct {
		since string
		ago   time.Duration
		want  bool
	}{
		{"", 1000 * time.Hour, true},
		{"90m", 90 * time.Minute, true},
		{"90m", 90*time.Minute + time.Microsecond, false},
		{"2001-02-03T04:00:00Z", 5*time.Minute + 6*time.Second, true},
		{"2001-02-03T04:00:00Z", 5*time.Minute + 6*time.Second + time.Microsecond, false},
		{"2001-02-03T05:00:00+01:00", 5*time.Minute + 6*time.Second, true},
	} {
		recent, err := since(c.since)
		if err != nil {
			t.Fatal(err)
		}
		if got := recent(&driver.Record{Started: now.Add(-c.ago), Now: now}); got != c.want {
			t.Errorf("--since %q selects what began %v ago: %v, want %v", c.since, c.ago, got, c.want)
		}
	}
}
