package fingerprint

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Whatever one of the usual readers takes for the same letter, fold does too.
func TestField07_FoldingIsAsCoarseAsAnyReaders(t *testing.T) {
	t.Parallel()
	for _, letters := range []*unicode.RangeTable{unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase} {
		eachRune(letters, func(r rune) {
			for _, same := range [...]rune{unicode.SimpleFold(r), unicode.ToUpper(r), unicode.ToLower(r)} {
				if foldRune(same) != foldRune(r) {
					t.Errorf("%q and %q: folded to %q and %q", r, same, foldRune(r), foldRune(same))
				}
			}
		})
	}
}

// eachRune calls f with each rune of a table.
func eachRune(table *unicode.RangeTable, f func(rune)) {
	for _, r := range table.R16 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			f(c)
		}
	}
	for _, r := range table.R32 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			f(c)
		}
	}
}

func FuzzFold(f *testing.F) {
	for _, s := range [][2]string{{"amount", "Amount"}, {"K", "k"}, {"ıd", "ID"}, {"BA", "䅂"}, {"", "a"}, {"é", "é"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			return
		}
		same := fold(a) == fold(b)
		if strings.EqualFold(a, b) && !same {
			t.Errorf("%q and %q are not the same", a, b)
		}
		if hashes := foldedHash([]byte(a)) == foldedHash([]byte(b)); hashes != same {
			t.Errorf("%q and %q: the same %v, their hashes %v", a, b, same, hashes)
		}
		if same && foldsToItself([]byte(a)) && foldsToItself([]byte(b)) && a != b {
			t.Errorf("%q and %q differ in case, and neither shows it", a, b)
		}
	})
}
