package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/proof"
)

// and cases 4, 9, 12, 24 while servers are killed, paused, cut off, slowed down and emptied, and
// replies are lost, each fault at least once, and processes are killed too. In the short form one of PostgreSQL's modes
// has its turn, by chance.
func TestR26_R30_R31_R46_Case04_Case09_Case12_Case24_ServersHurtUnderLoad(t *testing.T) {
	turn := []Mode{Tx, OneCommit}[rand.IntN(2)]
	for _, c := range []Config{
		{Storage: Postgres, Mode: Tx, Lease: 500 * time.Millisecond},
		{Storage: Postgres, Mode: OneCommit, Lease: 500 * time.Millisecond},
		{Storage: Redis, Mode: Hold, Lease: 500 * time.Millisecond},
		{Storage: Tiered, Mode: Rerun},
		{Storage: Sharded, Mode: Hold},
	} {
		if c.Storage == Sharded && !proof.Long {
			continue // it takes four servers
		}
		if c.Storage == Postgres && c.Mode != turn && !proof.Long {
			continue
		}
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
