package requestbody

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/refusal"
)

func TestAttack05_ABudgetIsSharedByPrincipals(t *testing.T) {
	t.Parallel()
	b := budgetOf(100, 0.4)
	alice, bob, nobody := driver.ScopeID{1}, driver.ScopeID{2}, driver.ScopeID{}
	for i, c := range []struct {
		of   driver.ScopeID
		n    int
		want bool
	}{{alice, 40, true}, {alice, 1, false}, {bob, 41, false}, {bob, 40, true}, {nobody, 20, true}, {nobody, 1, false}} {
		if got := b.Take(c.of, c.n); got != c.want {
			t.Errorf("%d: took %d: %t", i, c.n, got)
		}
	}
	b.Give(alice, 40)
	b.AtLeast(30)
	if !b.Take(nobody, 40) {
		t.Error("one that is not known yet has a share")
	}
	b.Give(nobody, 60)
	if !b.Take(alice, 60) || b.Take(alice, 1) || totalOf(b) != 100 {
		t.Errorf("there is not room for two bodies, or for more; in all for %d", totalOf(b))
	}
	b.AtLeast(1000)
	if totalOf(b) != 2000 {
		t.Errorf("in all there is room for %d", totalOf(b))
	}
	if none := (*budget.Budget)(nil); !none.Take(alice, 1<<40) {
		t.Error("no budget is one of nothing")
	}
}

// Whatever becomes of a body, all that it took is given back.
func TestAttack05_ABodyGivesBackWhatItTook(t *testing.T) {
	t.Parallel()
	const size = 10_000
	plain := strings.Repeat("x", size)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, plain)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sent        string
		held, files int
		o           Options
		err         error
	}{
		"enough":               {plain, size + 1, 0, Options{Limit: size}, nil},
		"too little":           {plain, size, 0, Options{Limit: size}, budget.ErrNoRoom},
		"too large":            {plain + "x", size + 1, 0, Options{Limit: size}, refusal.BodyTooLarge},
		"in a file":            {plain, 2000, size, Options{Limit: size, Memory: 1000}, nil},
		"too little disk":      {plain, 2000, size - 1, Options{Limit: size, Memory: 1000}, budget.ErrNoRoom},
		"packed":               {packed.String(), 2 * size, 0, Options{Limit: size, Coding: []string{"gzip"}}, nil},
		"too little, unpacked": {packed.String(), size, 0, Options{Limit: size, Coding: []string{"gzip"}}, budget.ErrNoRoom},
	} {
		c.o.Principal, c.o.Dir = driver.ScopeID{1}, t.TempDir()
		c.o.Held, c.o.Files = budgetOf(c.held, 1), budgetOf(c.files, 1)
		b, err := Read(strings.NewReader(c.sent), c.o)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if takenOf(c.o.Held)+takenOf(c.o.Files) == 0 {
				t.Errorf("%s: nothing was taken", name)
			}
			if err := errors.Join(b.Close(), b.Close()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if takenOf(c.o.Held) != 0 || takenOf(c.o.Files) != 0 {
			t.Errorf("%s: %d bytes and %d of files were not given back", name, takenOf(c.o.Held), takenOf(c.o.Files))
		}
	}
}

func budgetOf(total int, share float64) *budget.Budget {
	b := &budget.Budget{}
	b.Set(total, share)
	return b
}

func takenOf(b *budget.Budget) int64 {
	taken, _ := b.Use()
	return taken
}

func totalOf(b *budget.Budget) int64 {
	_, total := b.Use()
	return total
}
