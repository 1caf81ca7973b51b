package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/proof"
)

// and cases 4, 9, 12, 24 while servers are killed, paused, cut off, slowed down and emptied, and
// replies are lost, each fault at least once, and processes are killed too. In the short form, by
// chance, it is one of PostgreSQL's modes and one of the others.
func TestR26_R30_R31_R46_Case04_Case09_Case12_Case24_ServersHurtUnderLoad(t *testing.T) {
	all := append(proof.Some(1,
		Config{Storage: Postgres, Mode: Tx, Lease: 500 * time.Millisecond},
		Config{Storage: Postgres, Mode: OneCommit, Lease: 500 * time.Millisecond},
	), proof.Some(1,
		Config{Storage: Redis, Mode: Hold, Lease: 500 * time.Millisecond},
		Config{Storage: Tiered, Mode: Rerun},
	)...)
	if proof.Long() { // it takes four servers
		all = append(all, Config{Storage: Sharded, Mode: Hold})
	}
	for _, c := range all {
		t.Run(fmt.Sprintf("%s %s", c.Storage, c.Mode), func(t *testing.T) {
			t.Parallel()
			c.Seed, c.Clients, c.For = rand.Uint64(), proof.Of(4, 8), proof.Of(100*time.Millisecond, time.Second)
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

// Each fault comes before chance decides.
func TestEachFaultComes(t *testing.T) {
	t.Parallel()
	for _, s := range Storages() {
		o := newStorm(&Config{Seed: 1, Lease: time.Second, faults: s.Faults()}, nil, []string{"1", "2"})
		came := map[Fault]bool{}
		for range s.Faults() {
			came[o.next().fault] = true
		}
		for _, f := range s.Faults() {
			if !came[f] {
				t.Errorf("%s: %s does not come", s, f)
			}
		}
	}
}
