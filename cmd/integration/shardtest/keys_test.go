package shardtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/pgstore"
)

// P-18: a verb touches one key, so that keys can be shared out to servers. Here everything that is stored of other
// operations is locked, and the verbs of one operation do not wait.
func TestAVerbOnPostgreSQLTouchesNoSecondKey(t *testing.T) {
	t.Parallel()
	for _, partitioned := range []bool{false, true} {
		t.Run(fmt.Sprintf("answers apart is %t", partitioned), func(t *testing.T) {
			t.Parallel()
			schema := newSchema()
			s, err := pgstore.Open(t.Context(), sharedPool(t), pgstore.Options{Schema: schema, MaxConns: 2, PartitionAnswers: partitioned})
			must(t, err)
			t.Cleanup(func() { must(t, s.Close()) })
			for i := range 40 {
				c := verbs.Ask(driver.LostPolicy(i % 2))
				c.Sealed = []byte("sealed")
				id := verbs.NewID()
				rec := verbs.Claim(t, s, id, c)
				verbs.SaveStep(t, s, id, rec.Owner(), "charge", "7")
				switch i % 4 {
				case 1:
					verbs.Settle(t, s, id, rec.Owner(), verbs.Done("paid"))
				case 2:
					verbs.Settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
				case 3:
					verbs.Settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Unknown})
				}
				must(t, s.Audit(t.Context(), driver.AuditEntry{ID: id, Actor: "a", Action: "show", Reason: "b"}))
			}
			tx, err := sharedPool(t).Begin(t.Context())
			must(t, err)
			defer tx.Rollback(context.Background()) //nolint:errcheck // it has only locked
			for _, table := range []string{"records", "steps", "answers", "audit"} {
				_, err := tx.Exec(t.Context(), "SELECT FROM "+schema+"."+table+" FOR UPDATE")
				must(t, err)
			}

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			id, c := verbs.NewID(), verbs.Ask(driver.Rerun)
			c.Sealed = []byte("sealed")
			var rec driver.Record
			for _, v := range []struct {
				name string
				do   func() (bool, error)
			}{
				{"load of a new key", func() (bool, error) { rec, err := s.Load(ctx, id); return rec.State == driver.Absent, err }},
				{"claim", func() (owned bool, err error) { rec, owned, err = s.Claim(ctx, id, c); return owned, err }},
				{"refused claim", func() (bool, error) { _, owned, err := s.Claim(ctx, id, verbs.Retry(c)); return !owned, err }},
				{"extend", func() (bool, error) { return s.Extend(ctx, id, rec.Owner(), driver.Extension{}) }},
				{"save step", func() (bool, error) { return s.SaveStep(ctx, id, rec.Owner(), "charge", []byte("7")) }},
				{"steps", func() (bool, error) { saved, err := s.Steps(ctx, id); return len(saved) == 1, err }},
				{"release", func() (bool, error) {
					_, owned, err := s.Settle(ctx, id, rec.Owner(), driver.Outcome{State: driver.Free})
					return owned, err
				}},
				{"claim of a free key", func() (owned bool, err error) { rec, owned, err = s.Claim(ctx, id, verbs.Retry(c)); return owned, err }},
				{"settle as unknown", func() (bool, error) {
					_, owned, err := s.Settle(ctx, id, rec.Owner(), driver.Outcome{State: driver.Unknown})
					return owned, err
				}},
				{"seize", func() (_ bool, err error) {
					rec, err = s.Seize(ctx, id, driver.NewToken())
					return rec.Seized, err
				}},
				{"settle", func() (bool, error) {
					_, owned, err := s.Settle(ctx, id, rec.Owner(), verbs.Done("paid"))
					return owned, err
				}},
				{"replay", func() (bool, error) {
					got, owned, err := s.Claim(ctx, id, verbs.Retry(c))
					return !owned && got.Response != nil, err
				}},
				{"forget", func() (bool, error) { return s.Forget(ctx, id, rec.Owner()) }},
			} {
				if ok, err := v.do(); err != nil || !ok {
					t.Fatalf("%s: %t, error %v", v.name, ok, err)
				}
			}
		})
	}
}
