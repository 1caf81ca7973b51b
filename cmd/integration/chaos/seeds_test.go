package chaos

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/proof"
)

//go:embed testdata/seeds.txt
var seeds string

// Seeds that have found something are played again.
func TestR26_SeedsThatHaveFoundSomething(t *testing.T) {
	t.Parallel()
	n := 0
	for line := range strings.Lines(seeds) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			c := readSeed(t, line)
			c.Clients, c.For, c.hasty = 16, proof.Of(time.Second, 2*time.Second), true
			if r := playSeed(t, c); r.Effects == 0 {
				t.Errorf("too little happened for this to prove anything: %+v", r)
			}
		})
	}
	if n == 0 {
		t.Error("there is none")
	}
}

// readSeed reads a line of seeds.txt.
func readSeed(t *testing.T, line string) Config {
	t.Helper()
	parts := strings.SplitN(line, " ", 4)
	if len(parts) < 4 {
		t.Fatalf("%q: want STORE MODE SEED WHAT", line)
	}
	c := Config{Storage: Storage(parts[0]), Mode: Mode(parts[1])}
	var err error
	if c.Seed, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if !slices.Contains(Storages(), c.Storage) || !slices.Contains(c.Storage.Modes(), c.Mode) {
		t.Fatalf("%q: no such store, or no such mode with it", line)
	}
	return c
}
