package bugtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel/cmd/internal/broken"
	"github.com/semelhq/semel/cmd/internal/demo"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/verify"
)

// bugVariable makes this program "semel demo --bug", which can be killed.
const bugVariable = "SEMEL_VERIFY_TEST_BUG"

func TestMain(m *testing.M) {
	if bug := os.Getenv(bugVariable); bug != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		c := demo.Config{Bug: bug, Dir: os.Args[1], Listen: os.Args[2], Out: io.Discard}
		if err := c.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// wholeMatrix has each bug looked for with every check, and not only with the one that finds it: that takes some
// minutes.
const wholeMatrix = "SEMEL_VERIFY_MATRIX"

// atOnce is how many servers are checked at once. They mostly wait.
const atOnce = 8

// obvious bugs are seen by many checks: next to nothing works with them.
var obvious = []string{"forget", "no-claim"}

// alsoSeen are checks that see a bug which another one is there for, with the reason why that can't be otherwise.
var alsoSeen = map[string][]string{}

// Each bug is found by the check that is there for it, and each check of safety finds one that no other finds.
func TestR89_EachBugIsFoundByItsCheck(t *testing.T) {
	t.Parallel()
	bugs := append([]broken.Bug{{Name: broken.None}}, broken.Bugs()...)
	reports := make([]*verify.Report, len(bugs))
	errs := make([]error, len(bugs))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, bug := range bugs {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			for tries := 0; tries == 0 || tries < 3 && (errs[i] != nil || missed(bug, reports[i])); tries++ {
				reports[i], errs[i] = look(t, bug)
			}
		})
	}
	all.Wait()
	alone := map[string]bool{} // checks that have a bug of their own
	for i, bug := range bugs {
		t.Run(bug.Name, func(t *testing.T) {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			unsafe, found := judged(reports[i])
			switch {
			case bug.Name == broken.None && len(found) > 0:
				t.Errorf("%v found something where there is no bug", found)
			case bug.Name == broken.None:
				for _, r := range reports[i].Checks {
					if r.Status != verify.Passed {
						t.Errorf("%s was %s: %s", r.Name, r.Status, r.Why)
					}
				}
			case !slices.Contains(found, bug.Caught):
				t.Errorf("%s has not found it; %v have found something", bug.Caught, found)
			case !slices.Contains(obvious, bug.Name):
				for _, name := range unsafe {
					if name != bug.Caught && !slices.Contains(alsoSeen[bug.Name], name) {
						t.Errorf("%s sees it too, as a violation of safety", name)
					}
				}
			}
			if bug.Name != broken.None && reports[i].Violated() != (len(found) > 0) {
				t.Errorf("violated is %t with findings of %v", reports[i].Violated(), found)
			}
			if slices.Contains(unsafe, bug.Caught) {
				alone[bug.Caught] = true
			}
			if t.Failed() {
				tell(t, reports[i])
			}
		})
	}
	for _, name := range verify.SafetyChecks() {
		if !alone[name] {
			t.Errorf("check %s has no bug that it calls a violation of safety", name)
		}
	}
}

// missed reports whether a machine that stood still for a moment may be why a bug was not seen, or a check not made:
// many a check has to come at the right moment.
func missed(bug broken.Bug, r *verify.Report) bool {
	_, found := judged(r)
	if bug.Name != broken.None {
		return !slices.Contains(found, bug.Caught)
	}
	return len(found) == 0 && slices.ContainsFunc(r.Checks, func(c verify.Result) bool { return c.Status == verify.Skipped })
}

// judged returns which checks have found a violation of safety, and which have found anything. A load counts as one.
func judged(r *verify.Report) (unsafe, found []string) {
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			if f.Severity == verify.Safety && !slices.Contains(unsafe, c.Name) {
				unsafe = append(unsafe, c.Name)
			}
			if !slices.Contains(found, c.Name) {
				found = append(found, c.Name)
			}
		}
	}
	for _, g := range r.Gates {
		if !g.Open {
			unsafe, found = append(unsafe, "load"), append(found, "load")
		}
	}
	return unsafe, found
}

// tell logs what was found.
func tell(t *testing.T, r *verify.Report) {
	t.Helper()
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			t.Logf("%s: %s (%s): %s, want %s", c.Name, f.Severity, f.Rule, f.What, f.Right)
			for _, e := range f.Exchanges {
				t.Logf("    %8v  %s -> %s", e.At.Round(time.Millisecond), e.Sent, e.Came)
			}
		}
	}
}

// look checks a server with a bug.
func look(t *testing.T, bug broken.Bug) (*verify.Report, error) {
	s, stop, err := serve(t, bug.Name)
	if err != nil {
		return nil, err
	}
	defer stop()
	var o verify.Options
	switch {
	case bug.Caught == "load":
		o.Load = verify.LoadOptions{Rate: 60, Duration: 4 * time.Second, Seed: 1}
		o.Only = []string{"repeat"}
	case bug.Name != broken.None && os.Getenv(wholeMatrix) == "":
		o.Only = []string{bug.Caught}
	}
	if bug.Name == broken.None || bug.Caught == "load" && os.Getenv(wholeMatrix) != "" {
		o.Only, o.Load = nil, verify.LoadOptions{Rate: 60, Duration: 4 * time.Second, Seed: 1}
	}
	return verify.Run(t.Context(), s, o)
}

// serve starts a server with a bug as a process, and returns the scenario for it.
func serve(t *testing.T, bug string) (s *verify.Scenario, stop func(), err error) {
	proof.Reads("examples")
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "verify", "broken.yaml"))
	if err != nil {
		return nil, nil, err
	}
	if s, err = verify.ReadScenario(text); err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	address, dir := l.Addr().String(), t.TempDir()
	if err := l.Close(); err != nil {
		return nil, nil, err
	}
	s.Target = "http://" + address
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	pid := quote(filepath.Join(dir, "pid"))
	s.Process = verify.Process{
		Crash: "kill -KILL $(cat " + pid + ")",
		Restart: fmt.Sprintf("%s=%s %s %s %s >>%s 2>&1 & echo $! >%s",
			bugVariable, bug, quote(self), quote(dir), address, quote(filepath.Join(dir, "log")), pid),
		Pause: "kill -STOP $(cat " + pid + ")", Resume: "kill -CONT $(cat " + pid + ")",
		Ready: "/payments/count",
	}
	if err := s.Complete(); err != nil {
		return nil, nil, err
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", s.Process.Restart).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("start the server: %w: %s", err, out)
	}
	stop = func() {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Error(err)
			return
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil {
			err = syscall.Kill(n, syscall.SIGKILL)
		}
		if err != nil {
			t.Errorf("end the server: %v", err)
		}
	}
	return s, stop, verify.Await(t.Context(), s)
}
