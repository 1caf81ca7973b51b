package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// and cases 4, 9, 12, 24 while servers are killed, paused, cut off, slowed down and emptied, and
// replies are lost, each fault at least once, and processes are killed too.
func TestR26_R30_R31_R46_Case04_Case09_Case12_Case24_ServersHurtUnderLoad(t *testing.T) {
	for _, c := range []Config{
		{Storage: Postgres, Mode: Tx, Lease: 500 * time.Millisecond},
		{Storage: Postgres, Mode: OneCommit, Lease: 500 * time.Millisecond},
		{Storage: Redis, Mode: Hold, Lease: 500 * time.Millisecond},
		{Storage: Tiered, Mode: Rerun},
	} {
		t.Run(fmt.Sprintf("%s %s", c.Storage, c.Mode), func(t *testing.T) {
			t.Parallel()
			c.Seed, c.Clients, c.For = rand.Uint64(), 8, time.Second
			t.Logf("seed %d", c.Seed)
			r := playSeed(t, c)
			if len(r.MissedFaults) > 0 {
				t.Errorf("seed %d: there was no %v", c.Seed, r.MissedFaults)
			}
			if r.Effects == 0 {
				t.Errorf("seed %d: too little happened for this to prove anything: %+v", c.Seed, r)
			}
			t.Logf("\n%s", Tables([]*Report{r}))
		})
	}
}

// The faults, and who is killed when, are the same for the same seed.
func TestASeedIsASchedule(t *testing.T) {
	t.Parallel()
	schedule := func(seed uint64) []blow {
		o := newStorm(&Config{Seed: seed, Lease: time.Second, faults: Tiered.Faults()}, nil, []string{"1", "2"})
		blows := make([]blow, 100)
		for i := range blows {
			blows[i] = o.next()
		}
		return blows
	}
	first := schedule(1)
	if !slices.Equal(first, schedule(1)) {
		t.Error("one seed, two schedules")
	}
	if slices.Equal(first, schedule(2)) {
		t.Error("two seeds, one schedule")
	}
	for _, f := range Tiered.Faults() {
		if !slices.ContainsFunc(first[:len(allFaults)], func(b blow) bool { return b.fault == f }) {
			t.Errorf("%s does not come before chance decides", f)
		}
	}
}
