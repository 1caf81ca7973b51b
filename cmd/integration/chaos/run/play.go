package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/semelhq/semel/cmd/integration/chaos"
)

// once plays the courses that were asked for, once.
func (p *program) once(ctx context.Context, line *commandLine) error {
	seed := rand.Uint64()
	if line.Seed != nil {
		seed = *line.Seed
	}
	fmt.Fprintf(p.stdout, "seed %d\n", seed)
	played, err := p.play(ctx, line, round{seed: seed, long: line.For})
	p.tell(played)
	return err
}

// rounds plays them again and again with new seeds, until the time is over or a promise is broken.
func (p *program) rounds(ctx context.Context, line *commandLine) error {
	var all []played
	var err error
	for began, n := time.Now(), 1; err == nil && ctx.Err() == nil; n++ {
		left := line.For - time.Since(began)
		if left <= 0 {
			break
		}
		now := round{seed: rand.Uint64(), long: min(left, *line.Round), stops: true}
		fmt.Fprintf(p.stdout, "round %d, seed %d\n", n, now.seed)
		var some []played
		some, err = p.play(ctx, line, now)
		all = append(all, some...)
	}
	p.tell(all)
	return err
}

// A round is all courses with one seed.
type round struct {
	seed  uint64
	long  time.Duration // all courses together
	stops bool          // at the first course in which a promise is broken
}

// A played course is what was asked for and what came of it.
type played struct {
	cfg    chaos.Config
	report *chaos.Report
}

// play plays a round. The files are kept if it fails.
func (p *program) play(ctx context.Context, line *commandLine, now round) (all []played, err error) {
	courses := line.courses()
	dir, err := os.MkdirTemp("", "chaos-*")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w\nfiles are kept in %s", err, dir)
		}
	}()
	broken := 0
	for _, at := range courses {
		c := chaos.Config{
			Storage: at.storage, Mode: at.mode, Seed: now.seed, For: max(time.Millisecond, now.long/time.Duration(len(courses))),
			Operations: line.Operations, Clients: line.Clients, Fronts: line.Fronts,
			Dir: filepath.Join(dir, string(at.storage)+"-"+string(at.mode)),
		}
		if err := os.Mkdir(c.Dir, 0o700); err != nil {
			return all, fmt.Errorf("make a folder: %w", err)
		}
		r, err := p.run(ctx, c)
		if err != nil {
			return all, fmt.Errorf("%v: %w\nagain: %s", at, err, again(c))
		}
		fmt.Fprintf(p.stdout, "%v: %d operations, %d violations\n", at, r.Operations, len(r.Violations))
		all = append(all, played{c, r})
		broken += len(r.Violations)
		if ctx.Err() != nil || now.stops && broken > 0 {
			break
		}
	}
	if broken > 0 {
		return all, fmt.Errorf("%d promises were broken", broken)
	}
	return all, nil
}
