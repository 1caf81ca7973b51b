package tieredtest

import (
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/tieredstore"
)

// Of a batch the layers answer what they know, and the durable store the rest, in one trip; two processes do the same.
func TestABatchThroughTheLayers(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		for _, l := range []layers{redisOnly, both} {
			t.Run(k.name+", "+l.name, func(t *testing.T) {
				t.Parallel()
				open, prefix := k.make(t), newPrefix()
				d := &counted{durable: open()}
				s := tieredstore.New(d, l.options(cacheOn(sharedClient(t), prefix))).(driver.BatchClaimer)
				other := &counted{durable: open()}
				beside := tieredstore.New(other, l.options(cacheOn(sharedClient(t), prefix))).(driver.BatchClaimer)
				var repeats []driver.ClaimOf
				for range 50 {
					id, c := newID(), ask()
					finish(t, s, id, c)
					c.Token = driver.NewToken()
					repeats = append(repeats, driver.ClaimOf{ID: id, Claim: c})
				}
				answered := func(who string, all []driver.Claimed) {
					t.Helper()
					for i, got := range all {
						if got.Err != nil || got.Owned || got.Record.Response == nil || got.Record.Fingerprint != repeats[i].Fingerprint {
							t.Errorf("%s, repeat %d: owned is %t, %+v, error %v", who, i, got.Owned, got.Record, got.Err)
						}
					}
				}
				batch := func(s driver.BatchClaimer, d *counted, want, trips int64) []driver.Claimed {
					t.Helper()
					asked := d.asked.Load()
					d.claims.Store(0)
					claims := append([]driver.ClaimOf{}, repeats...)
					for range 20 {
						claims = append(claims, driver.ClaimOf{ID: newID(), Claim: ask()})
					}
					all := s.ClaimAll(t.Context(), claims)
					if n := d.claims.Load(); n != want || d.asked.Load()-asked != trips {
						t.Errorf("the durable store was asked for %d claims in %d trips, want %d in %d", n, d.asked.Load()-asked, want, trips)
					}
					for i, got := range all[len(repeats):] {
						if got.Err != nil || !got.Owned {
							t.Errorf("new operation %d: owned is %t, error %v", i, got.Owned, got.Err)
						}
					}
					return all[:len(repeats)]
				}
				answered("the first time", batch(s, d, 70, 1))
				answered("from the layers", batch(s, d, 20, 1))
				load(t, beside, newID()) // tells it the time: it would not serve a copy without
				answered("in another process", batch(beside, other, 20, 1))

				one := repeats[0]
				other.asked.Store(0)
				one.Fingerprint = driver.Fingerprint{Raw: driver.NewToken()}
				if got := beside.ClaimAll(t.Context(), []driver.ClaimOf{one})[0]; got.Owned || got.Record.Fingerprint != repeats[0].Fingerprint {
					t.Errorf("another request: owned is %t, %+v, error %v", got.Owned, got.Record, got.Err)
				}
				if n := other.asked.Load(); n != 0 {
					t.Errorf("another request has asked the durable store %d times", n)
				}
			})
		}
	}
}

// steps are saved and read behind the layers, and go with a Forget through them.
func TestR84_StepsThroughTheLayers(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			open, prefix := k.make(t), newPrefix()
			s := tieredstore.New(open(), both.options(cacheOn(sharedClient(t), prefix))).(driver.StepStore)
			other := tieredstore.New(open(), redisOnly.options(cacheOn(sharedClient(t), prefix))).(driver.StepStore)
			id, c := newID(), ask()
			rec, owned, err := s.Claim(t.Context(), id, c)
			if err != nil || !owned {
				t.Fatal(owned, err)
			}
			owned, err = s.SaveStep(t.Context(), id, rec.Owner(), "charge", []byte("7"))
			if err != nil || !owned {
				t.Fatal(owned, err)
			}
			if rec, _, err = s.Settle(t.Context(), id, rec.Owner(), driver.Outcome{State: driver.Done}); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the first makes the copies
				for who, s := range map[string]driver.StepStore{"here": s, "there": other} {
					saved, err := s.Steps(t.Context(), id)
					if got := load(t, s, id); err != nil || !got.Steps || string(saved["charge"]) != "7" {
						t.Errorf("%s: the record says %t, the steps are %q, error %v", who, got.Steps, saved, err)
					}
				}
			}
			if forgot, err := s.(driver.Seizer).Forget(t.Context(), id, rec.Owner()); err != nil || !forgot {
				t.Fatal(forgot, err)
			}
			next, owned, err := other.Claim(t.Context(), id, c)
			if err != nil || !owned || next.Steps {
				t.Errorf("after Forget: owned is %t, %+v, error %v", owned, next, err)
			}
			if saved, err := other.Steps(t.Context(), id); err != nil || len(saved) > 0 {
				t.Errorf("after Forget the steps are %q, error %v", saved, err)
			}
		})
	}
}
