package driver_test

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// A store that looks only at the range finds what a look at every id finds.
func TestField14_ThePrefixOfAnIDIsARange(t *testing.T) {
	t.Parallel()
	random := func() (id driver.ID) {
		rand.Read(id[:])
		return id
	}
	for range 100 {
		id := random()
		text := id.String()
		for n := range len(text) + 1 {
			q := driver.Query{Prefix: text[:n]}
			first, last, some := q.Range()
			if !some || n > 0 && (!strings.HasPrefix(first.String(), text[:n]) || !strings.HasPrefix(last.String(), text[:n])) {
				t.Fatalf("the range of %q is from %s to %s, %v", text[:n], first, last, some)
			}
			near, rec := id, driver.Record{State: driver.Done}
			near[n*6/8%len(near)] ^= byte(1) << (n % 8)
			for _, other := range []driver.ID{id, near, random()} {
				within := bytes.Compare(first[:], other[:]) <= 0 && bytes.Compare(other[:], last[:]) <= 0
				if begins := strings.HasPrefix(other.String(), text[:n]); within != begins || q.Matches(other, &rec) != begins {
					t.Fatalf("%s begins with %q: %v, in its range: %v, matches: %v", other, text[:n], begins, within, q.Matches(other, &rec))
				}
			}
		}
		scope := id.Scope()
		within := driver.Query{Scope: &scope, Prefix: text[:8]}
		if first, last, some := within.Range(); !some || first.Scope() != scope || last.Scope() != scope {
			t.Fatalf("the range in a scope is from %s to %s, %v", first, last, some)
		}
	}
}

func TestField14_WhatNoIDBeginsWithHasNoRange(t *testing.T) {
	t.Parallel()
	id := semel.Identify(nil, semel.KindHTTP, "acme", "k")
	other := semel.Identify(nil, semel.KindHTTP, "umbrella", "k").Scope()
	for name, q := range map[string]driver.Query{
		"another alphabet":          {Prefix: "order/42"},
		"a line end":                {Prefix: id.String()[:8] + "\n"},
		"more than an id":           {Prefix: id.String() + "A"},
		"the id of another scope":   {Prefix: id.String(), Scope: &other},
		"a prefix of another scope": {Prefix: id.String()[:21], Scope: &other},
	} {
		if first, last, some := q.Range(); some {
			t.Errorf("%s has a range, from %s to %s", name, first, last)
		}
		if q.Matches(id, &driver.Record{State: driver.Done}) {
			t.Errorf("%s matches", name)
		}
	}
}
