package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// draw invents an operation.
func (c *clients) draw(rng *rand.Rand, client uint64, i int64) *operation {
	p := payment{Order: fmt.Sprintf("order-%d", i), Amount: 1 + rng.IntN(1000), Kind: plain}
	switch chance := rng.IntN(100); {
	case chance < 5:
		p.Kind = refused
	case chance < 12 && !c.cfg.Mode.library():
		p.Kind = stream
	case chance < 12:
		p.Kind = failing
	}
	if c.cfg.Mode != OneCommit || c.cfg.Storage.server() { // else slow work would hold the lock that all wait for
		switch chance := rng.IntN(200); {
		case chance < 16:
			p.Takes = time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
		case chance == 16 && p.Kind != stream: // it must be renewed
			p.Takes = c.cfg.Lease + c.cfg.Lease/2
		}
	}
	if c.cfg.Mode.library() && c.cfg.Storage.server() {
		c.drawTransaction(rng, &p)
	}
	o := &operation{key: fmt.Sprintf("%s-%x-%d-%d", c.cfg.Mode, c.cfg.Seed, client, i), payment: p, request: p.json()}
	if rng.IntN(100) < 8 {
		p.Amount = -p.Amount
		o.rival = p.json()
	}
	return o
}

// drawTransaction invents what can come to a deadlock, or can't be serialized.
func (c *clients) drawTransaction(rng *rand.Rand, p *payment) {
	if rng.IntN(100) < 10 {
		p.Accounts = rng.Perm(accounts)[:2]
		for i := range p.Accounts {
			p.Accounts[i]++
		}
	}
	if c.cfg.Mode == Tx {
		switch rng.IntN(20) {
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
