package chaos

import (
	"context"
	"math/rand/v2"
	"time"
)

// A reaper kills processes of a cast, and starts them again at once.
type reaper struct {
	cast    *cast
	mode    Mode
	storage Storage
	stormy  <-chan struct{} // closed once each fault of the storage has come
	// Each point is visited once before chance decides: what is listed here is still to come.
	due    []stop
	visits *rand.Rand
	// The rounds that chance decides are the same for the same seed. How many visits it takes is up to the machine.
	rounds *rand.Rand
	last   round
}

// A stop is a point of a process.
type stop struct {
	at    *process
	point Point
}

// A round is a kill: who, and when.
type round struct {
	victims []*process
	point   Point         // of the first victim; Random if it is killed from outside
	n       int           // how many times it passes the point
	after   time.Duration // when it is killed from outside, at the latest
	hurried bool          // that counts from its start; else from when it listens
}

const (
	pointTime = 400 * time.Millisecond // how long a process is waited for to come by its point
	visitTime = 5 * time.Minute        // how long visiting each point, and each fault, may take
	longest   = 200 * time.Millisecond // until a random kill
	shortest  = 40 * time.Millisecond  // for a kill while a process starts
)

func newReaper(k *cast, c *Config, stormy <-chan struct{}) *reaper {
	r := &reaper{
		cast: k, mode: c.Mode, storage: c.Storage, stormy: stormy,
		visits: rand.New(rand.NewPCG(c.Seed, 1<<34)), rounds: rand.New(rand.NewPCG(c.Seed, 1<<32)),
	}
	if c.hasty {
		return r
	}
	for _, p := range k.all() {
		if p == k.service || p == k.fronts[0] {
			for _, point := range c.Mode.points(p.part.Role, c.Storage) {
				r.due = append(r.due, stop{p, point})
			}
		}
	}
	return r
}

// next draws the next round: a visit, or what chance decides.
func (r *reaper) next() round {
	if len(r.due) > 0 {
		s := r.due[0]
		return round{victims: []*process{s.at}, point: s.point, n: 1 + r.visits.IntN(4), after: 5 * pointTime}
	}
	r.last = r.chance()
	return r.last
}

func (r *reaper) chance() round {
	microseconds := func(most time.Duration) time.Duration {
		return time.Duration(r.rounds.Int64N(int64(most/time.Microsecond))) * time.Microsecond
	}
	front := r.cast.fronts[r.rounds.IntN(len(r.cast.fronts))]
	next := round{victims: []*process{front}, point: Random, after: microseconds(longest)}
	switch chance := r.rounds.IntN(100); {
	case chance < 15 && len(r.last.victims) > 0: // those that start just now
		next.victims, next.after, next.hurried = r.last.victims, microseconds(shortest), true
		return next
	case chance < 25:
		next.victims = r.cast.all()
	case chance < 50 && r.cast.service != nil:
		next.victims = []*process{r.cast.service}
	case chance < 60 && r.cast.service != nil:
		next.victims = append(next.victims, r.cast.service)
	}
	if r.rounds.IntN(2) == 0 {
		points := r.mode.points(next.victims[0].part.Role, r.storage)
		next.point, next.n, next.after = points[r.rounds.IntN(len(points))], 1+r.rounds.IntN(20), pointTime
	}
	return next
}

// reap visits each point, then kills for so long; or until ctx ends. All are alive then.
func (r *reaper) reap(ctx context.Context, long time.Duration) error {
	var visited time.Time
	for began := time.Now(); ctx.Err() == nil; {
		if visited.IsZero() && (len(r.due) == 0 && isClosed(r.stormy) || time.Since(began) > visitTime) {
			r.due, visited = nil, time.Now()
		}
		if !visited.IsZero() && time.Since(visited) > long {
			break
		}
		now := r.next()
		play := r.kill
		if now.point == Drained {
			play = r.roll
		}
		deaths, err := play(ctx, now)
		if err != nil {
			return err
		}
		if len(r.due) == 0 {
			continue
		}
		if len(deaths) == 0 || deaths[0].point != r.due[0].point {
			r.due = append(r.due, r.due[0]) // it is visited later
		}
		r.due = r.due[1:]
	}
	for _, p := range r.cast.all() {
		if err := p.listening(p.alive()); err != nil {
			return err
		}
	}
	return nil
}

// roll restarts the fronts in order, one after another. If ctx ends before, the rest is left as it is.
func (r *reaper) roll(ctx context.Context, _ round) ([]death, error) {
	var deaths []death
	for _, f := range r.cast.fronts {
		if err := f.listening(f.alive()); err != nil {
			return nil, err
		}
		if isClosed(ctx.Done()) {
			break
		}
		f.alive().drain()
		d, err := f.bury(f.alive())
		if err != nil {
			return nil, err
		}
		deaths = append(deaths, d)
		if _, err := f.start(); err != nil {
			return nil, err
		}
	}
	return deaths, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// kill plays one round. If ctx ends before, nobody is killed that does not do it by itself.
func (r *reaper) kill(ctx context.Context, now round) ([]death, error) {
	first := now.victims[0].alive()
	if !now.hurried {
		if err := now.victims[0].listening(first); err != nil {
			return nil, err
		}
	}
	if now.point != Random {
		first.arm(now.point, now.n)
	}
	timer := time.NewTimer(now.after)
	defer timer.Stop()
	victims := now.victims
	select {
	case <-first.ended:
	case <-timer.C:
	case <-ctx.Done():
		if now.point == Random {
			return nil, nil
		}
		victims = victims[:1] // it may spring its trap at any time: better now
	}
	var deaths []death
	for _, v := range victims {
		v.alive().kill()
	}
	for _, v := range victims {
		d, err := v.bury(v.alive())
		if err != nil {
			return nil, err
		}
		deaths = append(deaths, d)
		if _, err := v.start(); err != nil {
			return nil, err
		}
	}
	return deaths, nil
}
