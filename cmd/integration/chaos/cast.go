package chaos

import (
	"errors"
	"fmt"
	"time"
)

// A cast is the processes of a run. Killing and starting is done by one goroutine.
type cast struct {
	service *process // nil where the fronts are services themselves
	fronts  []*process
}

// newCast returns the processes of a run. Where the storage is a server, s has it, unless none of them is to be
// started.
func newCast(c *Config, s *site) *cast {
	k := &cast{}
	if !c.Mode.library() {
		k.service = c.newProcess("service", part{Role: serviceRole})
	}
	for i := range c.Fronts {
		p := part{Role: c.Mode.front(), Store: c.store()}
		if c.Storage.server() && s != nil {
			p.Store, p.Cache = s.addresses(c.Storage, i)
			p.Skew = time.Duration(i) * time.Hour
			p.Moves = i%2 == 1
			for _, next := range s.shards {
				shard, _ := next.addresses(Postgres, i)
				p.Shards = append(p.Shards, shard)
			}
		}
		k.fronts = append(k.fronts, c.newProcess(fmt.Sprintf("%s-%d", p.Role, i+1), p))
	}
	return k
}

// names returns those of the fronts.
func (k *cast) names() (names []string) {
	for _, f := range k.fronts {
		names = append(names, f.name)
	}
	return names
}

// all returns the processes, the service last.
func (k *cast) all() []*process {
	all := k.fronts[:len(k.fronts):len(k.fronts)]
	if k.service != nil {
		all = append(all, k.service)
	}
	return all
}

// start starts all and waits until they listen.
func (k *cast) start() error {
	begin := func(p *process) error {
		l, err := p.start()
		if err == nil {
			err = p.listening(l)
		}
		return err
	}
	if k.service != nil {
		if err := begin(k.service); err != nil {
			return err
		}
		for _, f := range k.fronts {
			f.part.Upstream = "http://" + k.service.at() + "/" + f.name
		}
	}
	for _, f := range k.fronts {
		if err := begin(f); err != nil {
			return err
		}
	}
	return nil
}

// stop kills all that are alive, and waits for their ends. What they die of then is no part of the run.
func (k *cast) stop() error {
	var errs []error
	for _, p := range k.all() {
		l := p.alive()
		if l == nil {
			continue
		}
		select {
		case <-l.ended: // by itself, after the last kill was seen to its end
			if l.killed.IsZero() && l.fired == "" {
				errs = append(errs, p.unexpected(l))
			}
			continue
		default:
		}
		l.kill()
		<-l.ended
		l.stdin.Close()
	}
	return errors.Join(errs...)
}

// kills returns how often the processes of the cast died at each point, and where none did although the mode has it.
func (k *cast) kills(c *Config) (byPoint map[Point]int, missed []Point) {
	byPoint = map[Point]int{}
	for _, d := range k.deaths() {
		byPoint[d.point]++
	}
	for _, p := range c.Mode.allPoints(c.Storage) {
		if byPoint[p] == 0 {
			missed = append(missed, p)
		}
	}
	return byPoint, missed
}

// troubles returns what the deaths in the cast explain: that of a front, what this front did, or all that have a file
// with it, in which it held locks; that of the service, everything.
func (k *cast) troubles(s Storage) (all []trouble) {
	for _, d := range k.deaths() {
		t := trouble{what: fmt.Sprintf("%s ended: %s", d.name, d.point), front: d.name, from: d.from, to: d.to, harmless: d.clean}
		if d.role == serviceRole || !s.server() {
			t.front = ""
		}
		all = append(all, t)
	}
	return all
}

func (k *cast) deaths() (all []death) {
	for _, p := range k.all() {
		p.mu.Lock()
		all = append(all, p.deaths...)
		p.mu.Unlock()
	}
	return all
}
