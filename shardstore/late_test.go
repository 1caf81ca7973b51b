package shardstore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/identity"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/shardstore"
)

// An opener opens a server's store, once the server is there.
type opener struct {
	store driver.Store
	there atomic.Bool
	takes time.Duration

	calls, atOnce atomic.Int64
	overlapped    atomic.Bool
}

func (o *opener) open(context.Context) (driver.Store, error) {
	o.calls.Add(1)
	if o.atOnce.Add(1) > 1 {
		o.overlapped.Store(true)
	}
	defer o.atOnce.Add(-1)
	time.Sleep(o.takes)
	if !o.there.Load() {
		return nil, errDown
	}
	return o.store, nil
}

// late returns the site's servers as shards, the last of which is opened by o.
func (s *site) late(o *opener) []shardstore.Shard {
	shards := s.shards(len(s.servers))
	last := &shards[len(shards)-1]
	o.store, last.Store, last.Open = last.Store, nil, o.open
	return shards
}

// A process that starts while a shard is down serves the operations of the others at once, and those of that shard once
// it is there. Nobody waits for it, and it is not asked more than once a second.
func TestAShardMayComeAfterTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, o := newSite(t, 3), &opener{takes: 3 * time.Second}
		ids := s.idsOf(t, open(t, s.shards(3), shardstore.None))
		over := open(t, s.late(o), shardstore.None)
		if err := identity.Check(ctx, over, []byte("0123456789abcdef0123456789abcdef")); err != nil {
			t.Errorf("the identity secret can't be checked: %v", err)
		}
		for range 10 {
			for name, id := range ids {
				if name != "s2" {
					verbs.Finish(t, over, id, verbs.Ask(driver.Hold))
					ids[name] = s.idsOf(t, open(t, s.shards(3), shardstore.None))[name]
					continue
				}
				began := time.Now()
				_, _, err := over.Claim(ctx, id, verbs.Ask(driver.Hold))
				if !errors.Is(err, driver.ErrNotExecuted) || !strings.Contains(err.Error(), `shard "s2"`) {
					t.Fatalf("a claim before it is there: %v", err)
				}
				if _, _, err := over.Settle(ctx, id, driver.Owner{}, verbs.Done("")); !errors.Is(err, driver.ErrNotExecuted) {
					t.Fatalf("a settle before it is there: %v", err)
				}
				if took := time.Since(began); took > 0 {
					t.Fatalf("a request has waited for %v", took)
				}
			}
			time.Sleep(time.Second)
		}
		if n := o.calls.Load(); n < 2 || n > 3 {
			t.Errorf("tried %d times in 10 s, each took 3 s: want one after the other, with a second between", n)
		}
		if _, err := over.Load(ctx, ids["s2"]); !errors.Is(err, errDown) {
			t.Errorf("a load: %v, want why it can't be opened", err)
		}
		listed := 0
		err := over.List(ctx, driver.Query{Reading: driver.ReadsDone}, func(driver.ID, driver.Record) bool {
			listed++
			return true
		})
		if listed == 0 || !errors.Is(err, errDown) {
			t.Errorf("listed %d of the others, error %v", listed, err)
		}

		o.there.Store(true)
		over.Load(ctx, ids["s2"]) //nolint:errcheck // it has it opened
		time.Sleep(10 * time.Second)
		over.Load(ctx, ids["s2"]) //nolint:errcheck // the try that was under way may have failed
		time.Sleep(10 * time.Second)
		opened := o.calls.Load()
		verbs.Finish(t, over, ids["s2"], verbs.Ask(driver.Hold))
		time.Sleep(10 * time.Second)
		verbs.Load(t, over, ids["s2"])
		if o.calls.Load() != opened || o.overlapped.Load() {
			t.Errorf("opened %d times after it was there; at once: %t", o.calls.Load()-opened, o.overlapped.Load())
		}
	})
}

// What lasts as long as the process begins once the shard is there.
func TestAShardThatComesAfterTheStartIsScanned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := &scanning{Store: memstore.New()}
		o := &opener{store: late}
		shards := []shardstore.Shard{{Name: "a", Store: memstore.New()}, {Name: "b", Open: o.open}}
		over, err := shardstore.New(shards, shardstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		go func() {
			time.Sleep(time.Minute)
			o.there.Store(true)
		}()
		if err := over.(driver.Scanner).Scan(ctx); !errors.Is(err, context.DeadlineExceeded) || !late.scans.Load() {
			t.Errorf("scanned: %t, error %v", late.scans.Load(), err)
		}
	})
}

// The identity secret of a shard that was down at the start is compared before it is used: under another one every key
// would be new.
func TestAShardOfAnotherSecretIsNotTaken(t *testing.T) {
	t.Parallel()
	secret, other := []byte("0123456789abcdef0123456789abcdef"), []byte("fedcba9876543210fedcba9876543210")
	for _, c := range []struct {
		name  string
		first []byte // with which the late shard was first used; nil if it was not
		check bool   // the process has checked its secret before the shard comes
		want  string
	}{
		{"the same", secret, true, ""},
		{"another", other, true, "another identity secret"},
		{"not used yet", nil, true, ""},
		{"another, and nothing is claimed yet", other, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, o := newSite(t, 2), &opener{}
				id := s.idsOf(t, open(t, s.shards(2), shardstore.None))["s1"]
				if c.first != nil {
					if err := identity.Check(t.Context(), s.servers[1], c.first); err != nil {
						t.Fatal(err)
					}
				}
				over := open(t, s.late(o), shardstore.None)
				check := func() error { return identity.Check(t.Context(), over, secret) }
				if c.check {
					if err := check(); err != nil {
						t.Fatal(err)
					}
				}
				o.there.Store(true)
				for range 5 {
					over.Load(t.Context(), id) //nolint:errcheck // it has it opened
					time.Sleep(2 * time.Second)
				}
				_, _, err := over.Claim(t.Context(), id, verbs.Ask(driver.Hold))
				refused := errors.Is(err, driver.ErrNotExecuted) && strings.Contains(err.Error(), c.want)
				if c.want == "" && err != nil || c.want != "" && !refused {
					t.Errorf("a claim: %v, want %q", err, c.want)
				}
				calls := o.calls.Load()
				time.Sleep(time.Minute)
				over.Load(t.Context(), id) //nolint:errcheck // it would have it opened
				synctest.Wait()
				if o.calls.Load() != calls {
					t.Errorf("opened %d times more", o.calls.Load()-calls)
				}
				if err := check(); (err != nil) != (!c.check && c.first != nil) {
					t.Errorf("a check: %v", err)
				}
			})
		})
	}
}

// While no other shard can be asked about the secret the shard waits; it is not opened again for that.
func TestAShardWaitsUntilItsSecretCanBeCompared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secret := []byte("0123456789abcdef0123456789abcdef")
		s, o := newSite(t, 2), &opener{}
		id := s.idsOf(t, open(t, s.shards(2), shardstore.None))["s1"]
		if err := identity.Check(t.Context(), s.servers[1], secret); err != nil {
			t.Fatal(err)
		}
		over := open(t, s.late(o), shardstore.None)
		if err := identity.Check(t.Context(), over, secret); err != nil {
			t.Fatal(err)
		}
		s.servers[0].down.Store(true)
		o.there.Store(true)
		ask := func() (err error) {
			for range 5 {
				_, err = over.Load(t.Context(), id)
				time.Sleep(2 * time.Second)
			}
			return err
		}
		if err := ask(); err == nil || !strings.Contains(err.Error(), "no other shard says") {
			t.Errorf("while the other is down: %v", err)
		}
		calls := o.calls.Load()
		s.servers[0].down.Store(false)
		if err := ask(); err != nil || o.calls.Load() != calls {
			t.Errorf("once the other is back: %v, opened %d times more", err, o.calls.Load()-calls)
		}
	})
}

func TestAShardThatCantBeUsedSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		id := s.idsOf(t, open(t, s.shards(2), shardstore.None))["s1"]
		plain := struct{ driver.Store }{s.servers[1]}
		for want, open := range map[string]func(context.Context) (driver.Store, error){
			"misspelt":                      func(context.Context) (driver.Store, error) { panic("misspelt") },
			"neither a store nor an error":  func(context.Context) (driver.Store, error) { return nil, nil },
			"lacks an optional interface":   func(context.Context) (driver.Store, error) { return plain, nil },
			"its store is not open yet: no": func(context.Context) (driver.Store, error) { return nil, errors.New("no") },
		} {
			var calls atomic.Int64
			counted := func(ctx context.Context) (driver.Store, error) {
				calls.Add(1)
				return open(ctx)
			}
			shards := []shardstore.Shard{{Name: "s0", Store: s.servers[0]}, {Name: "s1", Open: counted}}
			over, err := shardstore.New(shards, shardstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				over.Load(t.Context(), id) //nolint:errcheck // it has it opened
				time.Sleep(2 * time.Second)
			}
			if _, err := over.Load(t.Context(), id); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if lacks := strings.HasPrefix(want, "lacks"); lacks != (calls.Load() == 1) {
				t.Errorf("%s: opened %d times", want, calls.Load())
			}
		}
	})
}
