package fingerprint

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// fold brings a name into the form in which names are compared without case.
func fold(name string) string { return strings.Map(foldRune, name) }

// foldRune maps all runes that some reader takes for the same letter to one of them. It uses the simple case folding of
// Unicode, as encoding/json and strings.EqualFold do, and the simple mappings to upper and lower case, which other
// readers use. To those readers ı and İ are an i.
func foldRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z':
		return r - 'a' + 'A'
	case r < utf8.RuneSelf:
		return r
	}
	r = unicode.ToLower(unicode.ToUpper(r))
	least := r
	for n := unicode.SimpleFold(r); n != r; n = unicode.SimpleFold(n) {
		least = min(least, n)
	}
	return least
}

// foldsToItself reports whether every name that differs from this one only in case has an upper-case or a non-ASCII
// letter.
func foldsToItself(name []byte) bool {
	for _, b := range name {
		if b >= 'A' && b <= 'Z' || b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// foldedHash is the 64-bit FNV-1a hash of a folded name. It has to be the same in every process, because fingerprints
// depend on it.
func foldedHash(name []byte) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	var folded [utf8.UTFMax]byte
	for len(name) > 0 {
		r, size := rune(name[0]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(name)
		}
		name = name[size:]
		for _, b := range utf8.AppendRune(folded[:0], foldRune(r)) {
			h = (h ^ uint64(b)) * prime
		}
	}
	return h
}
