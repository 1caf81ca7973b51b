package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/history"
	"github.com/semelhq/semel/internal/proof"
)

func TestMain(m *testing.M) {
	Apart()
	status := m.Run()
	if dir, err := folder(); err == nil {
		os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	}
	os.Exit(status)
}

// The processes are no test binaries: those may have the race detector in them, and be killed before they have begun.
var (
	folder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "chaos-test-*") })
	binary = sync.OnceValues(func() (string, error) {
		dir, err := folder()
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "run")
		if out, err := exec.Command("go", "build", "-o", path, "./run").CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return path, nil
	})
)

// config completes a configuration of a short run.
func config(t *testing.T, c Config) Config {
	t.Helper()
	proof.Reads(proof.Code)
	var err error
	if c.program, err = binary(); err != nil {
		t.Fatal(err)
	}
	c.Dir = t.TempDir()
	if c.For == 0 {
		c.For = time.Second
	}
	return c
}

// playSeed plays a run and reports what was broken.
func playSeed(t *testing.T, c Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), config(t, c))
	if err != nil {
		t.Fatalf("seed %d: %v", c.Seed, err)
	}
	for i, v := range r.Violations {
		if i == 3 {
			t.Errorf("seed %d: … and %d more", c.Seed, len(r.Violations)-i)
			break
		}
		t.Errorf("seed %d: %v", c.Seed, v)
	}
	return r
}

// and cases 4, 9, 12, 24, all at once: at most one effect a key where that is promised, true
// answers, and no key stuck, while processes that share a store are killed at each named point and at random
// microseconds, duplicates and changed requests come in between, and each front sweeps all the time.
func TestR26_R30_R31_R46_Case04_Case09_Case12_Case24_KilledUnderLoad(t *testing.T) {
	for _, m := range SQLite.Modes() {
		t.Run(string(m), func(t *testing.T) {
			for i := range proof.Of(1, 2) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				c := Config{Mode: m, Seed: seed, Clients: proof.Of(6, 16), Fronts: 2 - i, For: proof.Of(500*time.Millisecond, time.Second)}
				r := playSeed(t, c)
				for r.Kills[Random] == 0 && c.For < 20*time.Second { // a slow machine has not come to them
					c.For *= 3
					r = playSeed(t, c)
				}
				if len(r.Missed) > 0 {
					t.Errorf("seed %d: nobody was killed at %v", seed, r.Missed)
				}
				if len(r.MissedFaults) > 0 {
					t.Errorf("seed %d: there was no %v", seed, r.MissedFaults)
				}
				if r.Effects == 0 || r.Kills[Random] == 0 {
					t.Errorf("seed %d: too little happened for this to prove anything: %+v", seed, r)
				}
				t.Logf("\n%s", Tables([]*Report{r}))
			}
		})
	}
}

// What a client that asks alone gets for its operation, and how many effects there are, if a process is killed at a
// point.
func TestR46_R30_R31_Case04_Case09_KilledAtAPoint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode    Mode
		at      Point
		n       int
		kind    kind
		want    reading
		effects int
		why     string
	}{
		{Rerun, AfterClaim, 1, plain, success, 1, "taken over; the first run had no effect"},
		{Rerun, BeforeCommit, 1, plain, success, 1, "the claim was not durable"},
		{Rerun, InHandler, 1, plain, success, 1, "lost, run again"},
		{Rerun, AfterEffect, 1, plain, success, 2, "lost after its effect, run again as its policy says"},
		{Rerun, BeforeSettle, 1, plain, success, 2, "the answer was not durable, so no byte of it has left"},
		{Rerun, AfterSettle, 1, plain, success, 1, "durable: replayed"},
		{Rerun, BeforeFirstByte, 1, plain, success, 1, "durable: replayed"},
		{Rerun, MidAnswer, 1, plain, success, 1, "the client has read the status line: replayed"},
		{Rerun, MidStream, 1, stream, unreplayable, 1, "begun: never run again"},

		{Hold, AfterClaim, 1, plain, unknown, 0, "nobody knows whether the handler has begun"},
		{Hold, BeforeCommit, 1, plain, success, 1, "the claim was not durable, so nothing was run"},
		{Hold, InHandler, 1, plain, unknown, 0, "the connection broke: there may be an effect"},
		{Hold, AfterEffect, 1, plain, unknown, 1, "there is one, and no second"},
		{Hold, BeforeSettle, 1, plain, unknown, 1, "the answer was lost with the process"},
		{Hold, AfterSettle, 1, plain, success, 1, "durable: replayed"},
		{Hold, BeforeFirstByte, 1, plain, success, 1, "durable: replayed"},
		{Hold, MidAnswer, 1, plain, success, 1, "the client has read the status line: replayed"},
		{Hold, MidStream, 1, stream, unreplayable, 1, "begun: never run again"},

		{Tx, AfterClaim, 1, plain, success, 1, "taken over"},
		{Tx, InTransaction, 1, plain, success, 1, "rolled back with its effect, taken over"},
		{Tx, BeforeCommit, 1, plain, success, 1, "of the claim: nothing was run"},
		{Tx, BeforeCommit, 2, plain, success, 1, "of effect and answer: both rolled back, taken over"},
		{Tx, AfterCommit, 1, plain, success, 1, "committed with its answer: replayed"},
		{Tx, BeforeFirstByte, 1, plain, success, 1, "committed: replayed"},
		{Tx, MidAnswer, 1, plain, success, 1, "committed: replayed"},
		{Tx, BeforeFirstByte, 1, refused, failure, 0, "the refusal is kept, the effect undone"},

		{OneCommit, InTransaction, 1, plain, success, 1, "no trace of the first run"},
		{OneCommit, BeforeCommit, 1, plain, success, 1, "no trace of the first run"},
		{OneCommit, AfterCommit, 1, plain, success, 1, "committed with its answer: replayed"},
		{OneCommit, BeforeFirstByte, 1, plain, success, 1, "committed: replayed"},
		{OneCommit, MidAnswer, 1, plain, success, 1, "committed: replayed"},
		{OneCommit, BeforeFirstByte, 1, refused, failure, 0, "the refusal is kept, the effect undone"},
	} {
		t.Run(fmt.Sprintf("%s/%s-%d/%s", tc.mode, tc.at, tc.n, tc.kind), func(t *testing.T) {
			t.Parallel()
			play := func(lease time.Duration) (wrong []string) {
				s := newScene(t, Config{Mode: tc.mode, Fronts: 1, Clients: 1, Lease: lease})
				victim := s.cast.fronts[0]
				if tc.at == InHandler || tc.at == AfterEffect {
					victim = s.cast.service
				}
				p := payment{Order: "1", Amount: 7, Kind: tc.kind}
				if tc.kind == stream {
					p.Takes = 20 * time.Millisecond // so that events come one by one
				}
				o := s.operation(p)
				if err := s.kill(victim, tc.at, tc.n, func() { s.pursue(o) }); err != nil {
					return []string{err.Error()}
				}
				if got := o.last(); got != tc.want {
					wrong = append(wrong, fmt.Sprintf("killed %s: %v, want %v: %s", tc.at, got, tc.want, tc.why))
				}
				_, more := s.found(o, tc.effects)
				return append(wrong, more...)
			}
			// Who is given no time by a busy machine loses a short lease. With a long one what is wrong is the code.
			wrong := play(defaultLease)
			for lease := 4 * defaultLease; len(wrong) > 0 && lease < 10*time.Second; lease *= 4 {
				t.Logf("with a quarter of a lease of %v: %q", lease, wrong)
				wrong = play(lease)
			}
			for _, what := range wrong {
				t.Error(what)
			}
		})
	}
}

// Case 4: killed in the handler, the key is refused as long as the lease lasts, and not longer.
func TestR46_Case04_TakeoverAtTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // so long that the process is there again within it
	s := newScene(t, Config{Mode: Rerun, Fronts: 1, Clients: 1, Lease: lease})
	o := s.operation(payment{Order: "1", Amount: 7, Kind: plain})
	front := s.cast.fronts[0]
	sent := time.Now()
	s.killed(front, BeforeSettle, 1, func() {
		if r, value := s.asking.ask(s.ctx, front.at(), o.key, o.request); r != broken {
			t.Fatalf("the process was not killed under the request: %v %s", r, value)
		}
	})
	s.listening(front)
	if r, value := s.asking.ask(s.ctx, front.at(), o.key, o.request); !strings.HasPrefix(value, "409 ") || r != later {
		t.Errorf("within the lease: %v %s, want 409 in progress", r, value)
	}
	s.pursue(o)
	if got := o.last(); got != success {
		t.Errorf("after the lease: %v, want success", got)
	}
	effects := s.judge(o, 2)
	if again := time.UnixMicro(effects[len(effects)-1].Began); again.Sub(sent) < lease {
		t.Errorf("run again %v after the first run was asked for, within its lease", again.Sub(sent))
	}
}

// Of many that ask at the end of a lease, in two processes, one takes over.
func TestR46_R26_OneTakesOver(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Mode: Rerun, Fronts: 2, Clients: 1, Lease: 4 * time.Second}) // one that is not lost without a kill
	o := s.operation(payment{Order: "1", Amount: 7, Kind: plain, Takes: 20 * time.Millisecond})
	front := s.cast.fronts[0]
	s.killed(front, BeforeSettle, 1, func() {
		s.asking.ask(s.ctx, front.at(), o.key, o.request)
	})
	s.listening(front)
	done := make(chan struct{})
	const callers = 40
	for i := range callers {
		go func() {
			s.asking.pursue(s.ctx, o, o.request, rand.New(rand.NewPCG(1, uint64(i))))
			done <- struct{}{}
		}()
	}
	for range callers {
		<-done
	}
	for _, e := range s.judge(o, 2) {
		if e.Attempt > 2 {
			t.Errorf("run %d: taken over twice", e.Attempt)
		}
	}
}

// A run finds what is wrong with a cast that has a flaw. In the short form three flaws have their turn, by chance.
func TestR90_AFlawIsFound(t *testing.T) {
	t.Parallel()
	type flawed struct {
		name string
		c    Config
		want string
	}
	all := []flawed{
		{"a proxy that sends again", Config{Mode: Hold, flaw: retryingProxy}, "effects"},
		{"a store that forgets", Config{Mode: Hold, Store: "memory://"}, "effects"},
		{"a store that forgets, rerun", Config{Mode: Rerun, Store: "memory://"}, "two final answers disagree"},
		{"a store that fails open", Config{Storage: Redis, Mode: Hold, flaw: failOpen, faults: []Fault{ServerReadOnly}}, "effects"},
		{"a store that is lost with its server", Config{Storage: Redis, Mode: Hold, flaw: forgetful, faults: []Fault{ServerKilled}}, "effects"},
		{"an effect apart from its transaction", Config{Mode: Tx, flaw: effectApart}, "effects"},
	}
	if testDisk(t) != nil {
		all = append(all, flawed{"a store that fails open on a full disk", Config{Mode: Hold, flaw: failOpen}, "effects"})
	}
	for _, tc := range proof.Some(3, all...) {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.c.Clients, tc.c.Fronts, tc.c.Seed, tc.c.hasty = 8, 1, 1, true
			for tc.c.For = proof.Of(500*time.Millisecond, 2*time.Second); ; tc.c.For *= 3 {
				c := config(t, tc.c)
				r, err := Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				_, err = os.Stat(filepath.Join(c.Dir, "files"))
				if kept := err == nil; kept != (r.Faults[DiskFull] > 0 && len(r.Violations) > 0) {
					t.Errorf("%d full disks, %d violations, and what was on the disk is kept: %v", r.Faults[DiskFull], len(r.Violations), kept)
				}
				if slices.ContainsFunc(r.Violations, func(v history.Violation) bool { return strings.Contains(v.What, tc.want) }) {
					return
				}
				if tc.c.For > 20*time.Second { // the slowest machine has come to it
					t.Fatalf("it was not found: no %q in %d violations, %d effects, %v, %v",
						tc.want, len(r.Violations), r.Effects, r.Kills, r.Faults)
				}
			}
		})
	}
}

// A process that ends without having been killed ends the run, with what it said.
func TestAProcessThatEndsByItselfIsReported(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), config(t, Config{Mode: Hold, Store: "carrier-pigeon://"}))
	if err == nil || !strings.Contains(err.Error(), "ended by itself") || !strings.Contains(err.Error(), "carrier-pigeon") {
		t.Errorf("got %v", err)
	}
}

// Nothing that a run has started outlives it: closing its standard input ends a process, as the end of the run does.
func TestAProcessEndsWithTheOneThatStartedIt(t *testing.T) {
	t.Parallel()
	c := config(t, Config{Mode: Hold})
	p := c.newProcess("service", part{Role: serviceRole})
	l, err := p.start()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.listening(l); err != nil {
		t.Fatal(err)
	}
	l.stdin.Close()
	select {
	case <-l.ended:
	case <-time.After(startTime):
		t.Error("it lives on")
		l.kill()
		<-l.ended
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Config{Mode: "never", Operations: -1})
	for _, want := range []string{"no such mode with sqlite", "no time", "less than no operations", "no folder"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// A scene is a cast in the hands of a test.
type scene struct {
	t      *testing.T
	cfg    Config
	cast   *cast
	asking *clients
	rng    *rand.Rand
	began  time.Time
	ctx    context.Context // ends when an operation should long have come to its end
}

func newScene(t *testing.T, c Config) *scene {
	t.Helper()
	c = config(t, c)
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, cfg: c, cast: newCast(&c, nil), rng: rand.New(rand.NewPCG(1, 1)), began: time.Now()}
	var end context.CancelFunc
	s.ctx, end = context.WithTimeout(t.Context(), endTime)
	t.Cleanup(end)
	t.Cleanup(func() {
		if err := s.cast.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := s.cast.start(); err != nil {
		t.Fatal(err)
	}
	s.asking = newClients(&s.cfg, s.cast)
	return s
}

func (s *scene) pursue(o *operation) { s.asking.pursue(s.ctx, o, o.request, s.rng) }

func (s *scene) operation(p payment) *operation {
	return &operation{key: "key-" + p.Order, payment: p, request: p.json()}
}

// killed does what has to lead a process to a point where it dies, and starts it again as soon as it has.
func (s *scene) killed(victim *process, at Point, n int, do func()) {
	s.t.Helper()
	if err := s.kill(victim, at, n, do); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) kill(victim *process, at Point, n int, do func()) error {
	r := reaper{cast: s.cast}
	victim.alive().arm(at, n)
	now := round{victims: []*process{victim}, point: Random, after: startTime} // from outside only if it does not do it itself
	died := make(chan error, 1)
	go func() {
		deaths, err := r.kill(s.ctx, now)
		if err == nil && (len(deaths) == 0 || deaths[0].point != at) {
			err = fmt.Errorf("it did not come by %s", at)
		}
		died <- err
	}()
	do()
	return <-died
}

func (s *scene) listening(p *process) {
	s.t.Helper()
	if err := p.listening(p.alive()); err != nil {
		s.t.Fatal(err)
	}
}

// judge returns the effects, of which there must be so many, and nothing wrong with them.
func (s *scene) judge(o *operation, want int) []effect {
	s.t.Helper()
	effects, wrong := s.found(o, want)
	for _, what := range wrong {
		s.t.Error(what)
	}
	return effects
}

// found is judge, and returns what is wrong.
func (s *scene) found(o *operation, want int) (effects []effect, wrong []string) {
	s.t.Helper()
	effects, _, err := s.cfg.effects(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	j := judge{mode: s.cfg.Mode, began: s.began, troubles: s.cast.troubles(s.cfg.Storage)}
	for _, v := range j.all([]*operation{o}, effects) {
		wrong = append(wrong, fmt.Sprint(v))
	}
	if len(effects) != want {
		wrong = append(wrong, fmt.Sprintf("%d effects, want %d: %+v", len(effects), want, effects))
	}
	return effects, wrong
}
