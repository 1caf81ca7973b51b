package chaos

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A seed decides the operations with their kinds, who is killed when, and the faults.
func TestASeedIsASchedule(t *testing.T) {
	t.Parallel()
	for _, s := range Storages() {
		for _, m := range s.Modes() {
			first, again, other := schedule(t, s, m, 1), schedule(t, s, m, 1), schedule(t, s, m, 2)
			for part, what := range first {
				if again[part] != what {
					t.Errorf("%s %s: one seed, two schedules of %s", s, m, part)
				}
				if other[part] == what {
					t.Errorf("%s %s: two seeds, one schedule of %s", s, m, part)
				}
			}
		}
	}
}

// schedule writes down the beginning of what a seed decides.
func schedule(t *testing.T, s Storage, m Mode, seed uint64) map[string]string {
	t.Helper()
	c := &Config{Storage: s, Mode: m, Seed: seed, For: time.Second, Dir: t.TempDir(), Clients: 3}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for client := range uint64(c.Clients) {
		d := newDraws(c, client)
		for range 50 {
			o := d.next()
			parts[fmt.Sprintf("client %d", client)] += fmt.Sprintf("%s %q %+v\n", o.request, o.rival, o.plan)
		}
	}
	k := newCast(c, nil)
	r := newReaper(k, c, nil)
	for ; len(r.due) > 0; r.due = r.due[1:] {
		parts["visits"] += told(r.next())
	}
	for range 200 {
		parts["kills"] += told(r.next())
	}
	o := newStorm(c, nil, k.names())
	for range 50 {
		parts["faults"] += fmt.Sprintf("%+v\n", o.next())
	}
	return parts
}

func told(r round) string {
	var names []string
	for _, v := range r.victims {
		names = append(names, v.name)
	}
	return fmt.Sprintf("%v %s %d %v %v\n", names, r.point, r.n, r.after, r.hurried)
}

// How many visits it takes to see each point changes nothing about the kills that follow.
func TestVisitsChangeNoSchedule(t *testing.T) {
	t.Parallel()
	kills := func(visits int) (all []string) {
		c := &Config{Mode: Rerun, Seed: 3, Fronts: 2}
		r := newReaper(newCast(c, nil), c, nil)
		for range visits {
			r.next()
		}
		r.due = nil
		for range 100 {
			all = append(all, told(r.next()))
		}
		return all
	}
	if !slices.Equal(kills(0), kills(17)) {
		t.Error("another number of visits, another schedule")
	}
}

// What the clients ask for does not depend on what they are answered.
func TestAnswersChangeNoSchedule(t *testing.T) {
	t.Parallel()
	asked := func(answer http.HandlerFunc) map[string]string {
		s := httptest.NewServer(answer)
		defer s.Close()
		c := &Config{Mode: Rerun, Seed: 4, Clients: 3, Operations: 150, Lease: 20 * time.Millisecond}
		a := newClients(c, &cast{fronts: []*process{{name: "front", address: s.Listener.Addr().String()}}})
		var working sync.WaitGroup
		for n := range c.Clients {
			working.Go(func() { a.work(t.Context(), t.Context(), uint64(n)) })
		}
		working.Wait()
		all := map[string]string{}
		for _, o := range a.operations {
			all[o.key] = fmt.Sprintf("%s %q %+v", o.request, o.rival, o.plan)
		}
		return all
	}
	ready := asked(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	var n atomic.Int64
	moody := asked(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusCreated)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	// Who is done sooner begins more of them: both have the first ones of each client.
	both := 0
	for key, what := range ready {
		if other, ok := moody[key]; ok {
			if both++; other != what {
				t.Errorf("%s: %s, or %s", key, what, other)
			}
		}
	}
	if both < 50 {
		t.Errorf("only %d operations of %d and %d are the same: %s", both, len(ready), len(moody),
			strings.Join(slices.Sorted(maps.Keys(moody)), " "))
	}
}
