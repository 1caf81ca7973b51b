package semel

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

func TestAttack05_ABudgetIsSharedByPrincipals(t *testing.T) {
	t.Parallel()
	b := &budget{shares: newShares(100, 0.4)}
	alice, bob, nobody := driver.ScopeID{1}, driver.ScopeID{2}, driver.ScopeID{}
	for i, c := range []struct {
		of   driver.ScopeID
		n    int
		want bool
	}{{alice, 40, true}, {alice, 1, false}, {bob, 41, false}, {bob, 40, true}, {nobody, 20, true}, {nobody, 1, false}} {
		if got := b.take(c.of, c.n); got != c.want {
			t.Errorf("%d: took %d: %t", i, c.n, got)
		}
	}
	b.give(alice, 40)
	b.atLeast(30)
	if !b.take(nobody, 40) {
		t.Error("one that is not known yet has a share")
	}
	b.give(nobody, 60)
	if !b.take(alice, 60) || b.take(alice, 1) || b.total != 100 {
		t.Errorf("there is not room for two bodies, or for more; in all for %d", b.total)
	}
	b.atLeast(1000)
	if b.total != 2000 {
		t.Errorf("in all there is room for %d", b.total)
	}
	if none := (*budget)(nil); !none.take(alice, 1<<40) {
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
		o           bodyOptions
		err         error
	}{
		"enough":               {plain, size + 1, 0, bodyOptions{limit: size}, nil},
		"too little":           {plain, size, 0, bodyOptions{limit: size}, errNoRoom},
		"too large":            {plain + "x", size + 1, 0, bodyOptions{limit: size}, refusal.BodyTooLarge},
		"in a file":            {plain, 2000, size, bodyOptions{limit: size, memory: 1000}, nil},
		"too little disk":      {plain, 2000, size - 1, bodyOptions{limit: size, memory: 1000}, errNoRoom},
		"packed":               {packed.String(), 2 * size, 0, bodyOptions{limit: size, coding: []string{"gzip"}}, nil},
		"too little, unpacked": {packed.String(), size, 0, bodyOptions{limit: size, coding: []string{"gzip"}}, errNoRoom},
	} {
		c.o.principal, c.o.dir = driver.ScopeID{1}, t.TempDir()
		c.o.held, c.o.files = &budget{shares: newShares(c.held, 1)}, &budget{shares: newShares(c.files, 1)}
		b, err := readBody(strings.NewReader(c.sent), c.o)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if c.o.held.n+c.o.files.n == 0 {
				t.Errorf("%s: nothing was taken", name)
			}
			if err := errors.Join(b.close(), b.close()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if c.o.held.n != 0 || c.o.files.n != 0 {
			t.Errorf("%s: %d bytes and %d of files were not given back", name, c.o.held.n, c.o.files.n)
		}
	}
}
