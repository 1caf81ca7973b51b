package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// Draws are the operations of one client, in order. They depend on nothing but the seed.
type draws struct {
	cfg    *Config
	client uint64
	drawn  int
	rng    *rand.Rand
}

func newDraws(c *Config, client uint64) *draws {
	return &draws{cfg: c, client: client, rng: rand.New(rand.NewPCG(c.Seed, client))}
}

// next invents an operation.
func (d *draws) next() *operation {
	d.drawn++
	p := payment{Order: fmt.Sprintf("order-%d-%d", d.client, d.drawn), Amount: 1 + d.rng.IntN(1000), Kind: plain}
	switch chance := d.rng.IntN(100); {
	case chance < 5:
		p.Kind = refused
	case chance < 12 && !d.cfg.Mode.library():
		p.Kind = stream
	case chance < 12:
		p.Kind = failing
	}
	if d.cfg.Mode != OneCommit || d.cfg.Storage.server() { // else slow work would hold the lock that all wait for
		switch chance := d.rng.IntN(200); {
		case chance < 16:
			p.Takes = time.Duration(d.rng.Int64N(int64(20 * time.Millisecond)))
		case chance == 16 && p.Kind != stream: // it must be renewed
			p.Takes = d.cfg.Lease + d.cfg.Lease/2
		}
	}
	if d.cfg.Mode.library() && d.cfg.Storage.server() {
		d.transaction(&p)
	}
	o := &operation{key: fmt.Sprintf("%s-%x-%d-%d", d.cfg.Mode, d.cfg.Seed, d.client, d.drawn), payment: p, request: p.json()}
	if d.rng.IntN(100) < 8 {
		p.Amount = -p.Amount
		o.rival = p.json()
	}
	o.plan = d.plan()
	return o
}

func (d *draws) plan() (p plan) {
	if d.rng.IntN(100) < 12 {
		p.others = 1 + d.rng.IntN(3)
	}
	p.together, p.again, p.seed = d.rng.IntN(4) == 0, d.rng.IntN(100) < 20, d.rng.Uint64()
	return p
}

// transaction invents what can come to a deadlock, or can't be serialized.
func (d *draws) transaction(p *payment) {
	if d.rng.IntN(100) < 10 {
		p.Accounts = d.rng.Perm(accounts)[:2]
		for i := range p.Accounts {
			p.Accounts[i]++
		}
	}
	if d.cfg.Mode == Tx {
		switch d.rng.IntN(20) {
		case 0:
			p.Isolation = pgx.RepeatableRead
		case 1:
			p.Isolation = pgx.Serializable
		}
	}
}

func (p payment) json() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic("chaos: marshal payment: " + err.Error()) // strings and numbers always marshal
	}
	return string(b)
}
