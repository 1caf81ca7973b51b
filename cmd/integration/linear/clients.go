package linear

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// A Run is clients that use one storage at once, in rounds. Each round has new records, which all its clients use.
type Run struct {
	// Handles are stores on one storage; the clients share them out. Each must be a driver.Seizer too.
	Handles []driver.Store
	// Layers says that the handles are layers before the storage, which answer Load and Claim with copies of done records:
	// their Forget deletes the record, and then the copies.
	Layers bool

	Seed    uint64 // of the clients' choices; when they meet is the machine's
	Rounds  int
	Clients int
	Verbs   int // of each client in each round
	Records int // in each round
}

// A Trace is what clients asked and were told.
type Trace struct {
	records map[driver.ID][]porcupine.Operation
}

// never is the time of a reply that was lost: its verb may be executed whenever it will.
const never = math.MaxInt64

// Do returns when all verbs have ended, the late ones too. An error is one that a store has no reason for.
func (r Run) Do(ctx context.Context) (*Trace, error) {
	t := &Trace{records: map[driver.ID][]porcupine.Operation{}}
	var ticks atomic.Int64
	for n := range r.Rounds {
		if err := r.round(ctx, uint64(n), &ticks, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (r Run) round(ctx context.Context, n uint64, ticks *atomic.Int64, t *Trace) error {
	var all []*client
	shared := &round{net: &network{}, owners: map[driver.ID][]driver.Owner{}}
	dice := rand.New(rand.NewPCG(r.Seed, n<<16))
	for range r.Records {
		shared.ids = append(shared.ids, randomID(dice))
	}
	for i := range r.Clients {
		all = append(all, &client{
			round: shared, n: i, ticks: ticks, store: r.Handles[i%len(r.Handles)],
			dice:   rand.New(rand.NewPCG(r.Seed, n<<16+uint64(i)+1)),
			claims: map[driver.ID]driver.Claim{}, settles: map[driver.ID]call{}, heard: map[driver.ID][]porcupine.Operation{},
		})
	}
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { c.work(ctx, r.Verbs) })
	}
	wg.Wait()
	shared.net.late.Wait()
	for _, c := range all {
		// In the end each client looks at what is left, so that nothing that was acknowledged gets lost unnoticed.
		for _, id := range shared.ids {
			if c.err == nil {
				c.err = c.ask(ctx, id, call{verb: load}, false)
			}
		}
		if c.err != nil {
			return fmt.Errorf("client %d: %w", c.n, c.err)
		}
		for id, operations := range c.heard {
			t.records[id] = append(t.records[id], operations...)
		}
	}
	if !r.Layers {
		return nil
	}
	for _, id := range shared.ids {
		var err error
		if t.records[id], err = halved(t.records[id]); err != nil {
			return err
		}
	}
	return nil
}

// halved adds the second half of each Forget.
func halved(operations []porcupine.Operation) ([]porcupine.Operation, error) {
	n := 0
	for i, o := range operations {
		c := o.Input.(call)
		if c.verb != forget {
			continue
		}
		c.layers, c.n = true, n
		operations[i].Input = c
		o.Input = call{verb: drop, n: n}
		if !o.Output.(reply).lost {
			operations = append(operations, o)
		}
		if n++; n > mostForgets {
			return nil, fmt.Errorf("more than %d Forgets of one record: too many for the model of layers", mostForgets)
		}
	}
	return operations, nil
}

// A round is what its clients share. They know of each other's runs, as late owners, operators and sweepers would.
type round struct {
	ids []driver.ID
	net *network

	mu     sync.Mutex
	owners map[driver.ID][]driver.Owner // as the records showed them, the last one last
	answer int
}

func (r *round) learn(id driver.ID, rec *driver.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.owners[id]; rec.State != driver.Absent && (len(all) == 0 || all[len(all)-1] != rec.Owner()) {
		r.owners[id] = append(all, rec.Owner())
	}
}

func (r *round) ownersOf(id driver.ID) []driver.Owner {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.owners[id])
}

// newAnswer returns one that no other run has.
func (r *round) newAnswer() *driver.Response {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer++
	return &driver.Response{Status: 201, Body: fmt.Appendf(nil, "answer %d", r.answer)}
}

type client struct {
	*round
	n       int
	ticks   *atomic.Int64
	store   driver.Store
	dice    *rand.Rand
	claims  map[driver.ID]driver.Claim // the last one
	settles map[driver.ID]call
	heard   map[driver.ID][]porcupine.Operation
	err     error
}

func (c *client) work(ctx context.Context, verbs int) {
	for range verbs {
		id := pick(c.dice, c.ids...)
		if c.err = c.ask(ctx, id, c.next(id), true); c.err != nil {
			return
		}
		if c.dice.IntN(10) == 0 {
			time.Sleep(time.Duration(c.dice.IntN(300)) * time.Microsecond) // leases end
		}
	}
}

// ask sends a verb, over the network or not, and records it.
func (c *client) ask(ctx context.Context, id driver.ID, a call, networked bool) error {
	o := porcupine.Operation{ClientId: c.n, Input: a, Call: c.ticks.Add(1)}
	verb := func(ctx context.Context) (reply, error) { return perform(ctx, c.store, id, a) }
	var r reply
	var err error
	if networked {
		r, err = c.net.carry(ctx, c.dice, verb)
	} else {
		r, err = verb(ctx)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		r = reply{lost: true} // who leaves may take down a connection, or the making of one, that others need too
	case err != nil:
		return fmt.Errorf("%s: %w", a, err)
	}
	o.Output, o.Return = r, c.ticks.Add(1)
	if r.lost {
		o.Return = never
	}
	c.heard[id] = append(c.heard[id], o)
	c.learn(id, &r.rec)
	return nil
}

func perform(ctx context.Context, s driver.Store, id driver.ID, a call) (r reply, err error) {
	switch a.verb {
	case claim:
		r.rec, r.owned, err = s.Claim(ctx, id, a.claim)
	case extend:
		r.owned, err = s.Extend(ctx, id, a.by, a.extend)
	case settle:
		r.rec, r.owned, err = s.Settle(ctx, id, a.by, a.outcome)
	case load:
		r.rec, err = s.Load(ctx, id)
	case seize:
		r.rec, err = s.(driver.Seizer).Seize(ctx, id, a.token)
	case forget:
		r.owned, err = s.(driver.Seizer).Forget(ctx, id, a.by)
	}
	return r, err
}

// next returns what the client does next.
func (c *client) next(id driver.ID) call {
	a := call{verb: pick(c.dice, claim, claim, claim, claim, settle, settle, settle, settle, extend, load, load, seize, forget)}
	switch a.verb {
	case claim:
		a.claim = c.claim(id)
	case extend:
		a.by = c.owner(id)
		a.extend = driver.Extension{Lease: c.lease(), Begun: c.oneIn(8)}
	case settle:
		return c.settle(id)
	case seize:
		a.token = c.token()
		if all := c.ownersOf(id); len(all) > 0 && c.oneIn(4) {
			a.token = all[len(all)-1].Token // a repetition
		}
	case forget:
		a.by = c.owner(id)
	}
	return a
}

func (c *client) claim(id driver.ID) driver.Claim {
	if last, ok := c.claims[id]; ok && c.oneIn(4) {
		return last // a repetition
	}
	a := driver.Claim{
		Fingerprint: driver.Fingerprint{Raw: [16]byte{1}}, Token: c.token(), Lease: c.lease(), Retention: time.Hour,
		OnLost:    pick(c.dice, semel.Hold, semel.Rerun, semel.Rerun),
		Operation: "POST /payments", Correlation: fmt.Sprintf("client %d", c.n),
	}
	if c.oneIn(6) {
		a.Fingerprint.Raw[0], a.Fingerprint.Canonical[0] = 2, 2
	}
	if c.oneIn(3) {
		a.Sealed = []byte("sealed")
	}
	c.claims[id] = a
	return a
}

func (c *client) settle(id driver.ID) call {
	if last, ok := c.settles[id]; ok && c.oneIn(5) {
		return last
	}
	a := call{verb: settle, by: c.owner(id)}
	a.outcome.State = pick(c.dice, driver.Done, driver.Free, driver.Free, driver.Unknown)
	switch {
	case a.outcome.State != driver.Done:
		a.outcome.Error = pick(c.dice, "", "timeout")
	case !c.oneIn(6):
		a.outcome.Response = c.newAnswer()
	}
	a.outcome.Owed = a.outcome.State != driver.Done && c.oneIn(6)
	if a.outcome.State == driver.Free && c.oneIn(3) {
		a.by.Above = true
		a.by.Fence = pick(c.dice, 0, a.by.Fence-1, a.by.Fence)
	}
	c.settles[id] = a
	return a
}

// owner returns the one that was seen last, mostly, or another one, or one who is wrong in the fence or the token.
func (c *client) owner(id driver.ID) driver.Owner {
	all := c.ownersOf(id)
	if len(all) == 0 {
		return driver.Owner{Fence: 1, Token: c.token()}
	}
	by := all[len(all)-1]
	switch c.dice.IntN(10) {
	case 0, 1:
		by = pick(c.dice, all...)
	case 2:
		by.Fence += pick(c.dice, 1, ^uint64(0))
	case 3:
		by.Token = pick(c.dice, all...).Token
	case 4:
		if last, ok := c.claims[id]; ok {
			by.Token = last.Token
		}
	}
	return by
}

// lease returns one that ends soon, or not at all.
func (c *client) lease() time.Duration {
	return pick(c.dice,
		10*time.Microsecond, 100*time.Microsecond, time.Millisecond, 5*time.Millisecond, time.Hour, 2*time.Hour, time.Hour)
}

func (c *client) token() (t driver.Token) {
	random(c.dice, t[:])
	return t
}

func (c *client) oneIn(n int) bool { return c.dice.IntN(n) == 0 }

func pick[T any](dice *rand.Rand, of ...T) T { return of[dice.IntN(len(of))] }

func randomID(dice *rand.Rand) (id driver.ID) {
	random(dice, id[:])
	return id
}

func random(dice *rand.Rand, b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], dice.Uint64())
	}
}

// ids returns those of all records, in an order that depends on nothing else.
func (t *Trace) ids() []driver.ID {
	return slices.SortedFunc(maps.Keys(t.records), func(a, b driver.ID) int { return slices.Compare(a[:], b[:]) })
}
