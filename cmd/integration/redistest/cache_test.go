package redistest

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

// A durable record, given out at some time on a clock that has nothing to do with the cache's.
func durable(retention time.Duration) driver.Record {
	return driver.Record{
		State: driver.Done, Wrote: driver.Done, Fence: 7, Token: driver.NewToken(), Attempt: 1,
		Fingerprint: driver.Fingerprint{Raw: driver.NewToken()},
		Created:     1, Started: 1, LeaseEnd: 2, Settled: 1000, Retention: retention,
		Operation: "POST /payments", Correlation: "c", Error: "", Sealed: []byte("sealed"),
		Response: done("answer").Response, Now: 2000,
	}
}

// look gets an entry, and tells whether it is there.
func look(t *testing.T, c *redisstore.Cache, id driver.ID) (driver.Record, uint64, bool) {
	t.Helper()
	rec, ticket, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return rec, ticket, rec.State != driver.Absent
}

func fill(t *testing.T, c *redisstore.Cache, id driver.ID, rec driver.Record, ticket uint64) {
	t.Helper()
	if err := c.Fill(t.Context(), id, rec, ticket); err != nil {
		t.Fatal(err)
	}
}

func forget(t *testing.T, c *redisstore.Cache, id driver.ID) {
	t.Helper()
	if err := c.Forget(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func TestACacheGivesBackWhatItWasGiven(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		client := lib.connect(t, single.Get(t).Addr())
		o := redisstore.CacheOptions{Prefix: prefix()}
		a, b := redisstore.NewCache(client, o), redisstore.NewCache(client, o)
		id, want := newID(), durable(time.Hour)
		_, ticket, there := look(t, a, id)
		if there || ticket == 0 {
			t.Fatalf("an empty cache has %t, ticket %d", there, ticket)
		}
		fill(t, a, id, want, ticket)
		last := want.Now
		for i := range 6 { // from the second time on it is known to be here
			got, _, there := look(t, []*redisstore.Cache{a, b}[i%2], id)
			if !there {
				t.Fatal("it is not there")
			}
			if got.Now < want.Now || got.Now > want.Now.Add(time.Minute) {
				t.Errorf("Now is %d, the record was given out at %d", got.Now, last)
			}
			got.Now = want.Now
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
		}
		forget(t, b, id)
		for _, c := range []*redisstore.Cache{a, b} {
			if _, _, there := look(t, c, id); there {
				t.Error("it is there after it was forgotten")
			}
		}
	})
}

func TestACacheKeepsOnlyWhatIsDone(t *testing.T) {
	t.Parallel()
	c := redisstore.NewCache(rueidisTo(t, single.Get(t).Addr()), redisstore.CacheOptions{Prefix: prefix()})
	for what, change := range map[string]func(r *driver.Record){
		"absent":  func(r *driver.Record) { *r = driver.Record{Now: r.Now} },
		"running": func(r *driver.Record) { r.State, r.Response, r.Wrote = driver.Running, nil, driver.Absent },
		"begun, and lapsed": func(r *driver.Record) {
			r.State, r.Response, r.Wrote, r.Begun = driver.Running, nil, driver.Absent, true
		},
		"unknown":             func(r *driver.Record) { r.State, r.Response = driver.Unknown, nil },
		"past its retention":  func(r *driver.Record) { r.Now = r.Settled.Add(r.Retention) },
		"about to be past it": func(r *driver.Record) { r.Now = r.Settled.Add(r.Retention) - 1 },
	} {
		id, rec := newID(), durable(time.Hour)
		_, ticket, _ := look(t, c, id)
		change(&rec)
		fill(t, c, id, rec, ticket)
		if got, _, there := look(t, c, id); there {
			t.Errorf("it keeps a record that is %s: %+v", what, got)
		}
	}
}

// The reader that was slow: it looked, the operation was forgotten, and only then does it fill in what it had read
// before.
func TestACacheTakesNothingBackThatWasForgotten(t *testing.T) {
	t.Parallel()
	client := rueidisTo(t, single.Get(t).Addr())
	name := prefix()
	c := redisstore.NewCache(client, redisstore.CacheOptions{Prefix: name})
	for _, row := range []struct {
		what string
		then func(id driver.ID, rec driver.Record, ticket uint64)
	}{
		{"forgotten", func(id driver.ID, _ driver.Record, _ uint64) { forget(t, c, id) }},
		{"forgotten, and looked for again", func(id driver.ID, _ driver.Record, ticket uint64) {
			forget(t, c, id)
			if _, second, _ := look(t, c, id); second == ticket || second == 0 {
				t.Errorf("ticket %d follows %d", second, ticket)
			}
		}},
		{"filled, then forgotten", func(id driver.ID, rec driver.Record, ticket uint64) {
			fill(t, c, id, rec, ticket)
			forget(t, c, id)
		}},
		{"lost by the server", func(id driver.ID, _ driver.Record, _ uint64) {
			key := name + "{" + id.String() + "}"
			do(t, client, key, "DEL", key)
		}},
		{"the ticket is over", func(id driver.ID, _ driver.Record, _ uint64) {
			key := name + "{" + id.String() + "}"
			if left := ttl(t, client, key); left <= 0 || left > 10*time.Second {
				t.Errorf("the ticket ends in %s", left)
			}
			do(t, client, key, "PEXPIRE", key, "1")
			for until := time.Now().Add(30 * time.Second); ttl(t, client, key) >= 0; time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Fatal("the ticket does not end")
				}
			}
		}},
	} {
		id, rec := newID(), durable(time.Hour)
		_, ticket, _ := look(t, c, id)
		row.then(id, rec, ticket)
		fill(t, c, id, rec, ticket)
		if _, _, there := look(t, c, id); there {
			t.Errorf("%s: it is back", row.what)
		}
	}
	id := newID()
	fill(t, c, id, durable(time.Hour), 0)
	if _, _, there := look(t, c, id); there {
		t.Error("it was filled in without a ticket")
	}
}

// Readers that look at once share a ticket; whatever they do, what was filled in is there until it is forgotten, and
// not after.
func TestACacheUnderManyHands(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		o := redisstore.CacheOptions{Prefix: prefix()}
		caches := []*redisstore.Cache{
			redisstore.NewCache(lib.connect(t, cluster.Get(t).Addrs()...), o), redisstore.NewCache(lib.connect(t, cluster.Get(t).Addrs()...), o),
		}
		for range 20 {
			id, rec := newID(), durable(time.Hour)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					c := caches[i%2]
					_, ticket, there, err := find(t, c, id)
					if i == 0 {
						if err := c.Forget(t.Context(), id); err != nil {
							t.Error(err)
						}
					}
					if err == nil && !there {
						err = c.Fill(t.Context(), id, rec, ticket)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			forget(t, caches[0], id)
			for _, c := range caches {
				if _, _, there := look(t, c, id); there {
					t.Error("it is there after it was forgotten")
				}
			}
		}
	})
}

func find(t *testing.T, c *redisstore.Cache, id driver.ID) (driver.Record, uint64, bool, error) {
	rec, ticket, err := c.Get(t.Context(), id)
	return rec, ticket, rec.State != driver.Absent, err
}

// An entry is gone before the retention is over.
func TestACacheEndsBeforeTheRetention(t *testing.T) {
	t.Parallel()
	client := rueidisTo(t, single.Get(t).Addr())
	name := prefix()
	c := redisstore.NewCache(client, redisstore.CacheOptions{Prefix: name, Keep: 10 * time.Minute})
	for _, row := range []struct {
		left, want time.Duration
	}{
		{time.Minute, time.Minute}, // what is left of the retention
		{time.Hour, 10 * time.Minute},
		{semel.Forever - time.Hour, 10 * time.Minute},
	} {
		id, rec := newID(), durable(row.left)
		rec.Now = rec.Settled
		_, ticket, _ := look(t, c, id)
		fill(t, c, id, rec, ticket)
		key := name + "{" + id.String() + "}"
		if got := ttl(t, client, key); got >= row.want || got < row.want-30*time.Second {
			t.Errorf("with %s left the entry ends in %s, want less than %s", row.left, got, row.want)
		}
	}
}

// A server without memory answers from what it has, and takes no more.
func TestACacheWithoutMemoryStillAnswers(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	client := goRedisTo(t, r.Addr())
	c := redisstore.NewCache(client, redisstore.CacheOptions{})
	id, rec := newID(), durable(time.Hour)
	_, ticket, _ := look(t, c, id)
	fill(t, c, id, rec, ticket)
	do(t, client, "", "CONFIG", "SET", "maxmemory", "1mb")
	if _, _, there := look(t, c, id); !there {
		t.Error("it is not there")
	}
	other := newID()
	if _, ticket, there := look(t, c, other); there || ticket != 0 {
		t.Errorf("there is a ticket, %d, that the server could not keep", ticket)
	}
	fill(t, c, other, rec, 0)
	forget(t, c, id)
	if _, _, there := look(t, c, id); there {
		t.Error("it is there after it was forgotten")
	}
}
