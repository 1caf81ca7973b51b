package demo

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/verify"
)

// What "semel-verify" finds behind the demo's gateway: nothing, with and without faults of the network.
func TestR89_VerifyFindsNothingBehindTheGateway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := new(output), make(chan error, 1)
	go func() { ended <- Config{Out: out, Listen: freePort, only: []int{}}.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	address := regexp.MustCompile(`gateway +(http://\S+)`)
	for address.FindStringSubmatch(out.String()) == nil {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the demo has ended: %v\n%s", err, out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	proof.Reads("examples")
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "verify", "demo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := verify.ReadScenario(text)
	if err != nil {
		t.Fatal(err)
	}
	s.Target = address.FindStringSubmatch(out.String())[1]
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	report, err := verify.Run(t.Context(), s, verify.Options{
		Load: verify.LoadOptions{Rate: 40, Duration: 3 * time.Second, Faults: 0.2},
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Violated() {
		t.Errorf("violated (seed %d)", report.Seed)
	}
	var skipped []string
	for _, c := range report.Checks {
		for _, f := range c.Findings {
			t.Errorf("%s: %s (%s): %s, want %s\n%v", c.Name, f.Severity, f.Rule, f.What, f.Right, f.Exchanges)
		}
		if c.Status == verify.Skipped {
			skipped = append(skipped, c.Name)
		}
	}
	// The demo's gateway has a lease of 30 s, and can't be crashed.
	want := []string{"slow", "crash-after-answer", "crash-before-effect", "crash-after-effect", "pause"}
	if !slices.Equal(skipped, want) {
		t.Errorf("skipped %v, want %v", skipped, want)
	}
	if n := len(report.Loads); n != 2 || report.Loads[1].SuccessRate < 1 || report.Loads[1].Injected == nil {
		t.Errorf("%d loads: %+v", n, report.Gates)
	}
}
