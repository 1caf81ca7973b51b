package fingerprint

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/structuredfield"
)

// maxFormPairs is how many pairs a query or form may have to be canonicalised. It bounds what sorting them costs.
const maxFormPairs = 10_000

// A formPair is a name and its value, by their places in buf. buf[order:orderEnd] decides where it stands: its name up
// to a bracket, folded if it has letters beyond ASCII.
type formPair struct{ start, name, end, order, orderEnd int32 }

// query leaves the pairs of a query in normal order in c.pairs, and reports whether it could, as it can if the query is
// one that a form would have made. Names are decoded to find their order; pairs are compared as they are written,
// because a plus sign means a space to some servers only.
func (c *canonicalizer) query(query string) bool {
	c.pairs = c.pairs[:0]
	if query == "" {
		return true
	}
	// The text stands before what is decoded from it.
	c.buf = append(c.buf[:0], query...)
	return c.split(c.buf, true)
}

// form leaves the pairs of a body of application/x-www-form-urlencoded, decoded, in normal order in c.pairs, and
// reports whether it could. It can't if the body is something else that was sent as a form by mistake, such as JSON by
// a client that calls everything one: its handler reads it as it is, where 1+1 is not 1 1.
func (c *canonicalizer) form(body []byte) bool {
	c.pairs, c.buf = c.pairs[:0], c.buf[:0]
	return c.split(body, false)
}

// split reads pairs, which are in buf already or are appended to it.
func (c *canonicalizer) split(src []byte, asWritten bool) bool {
	n := bytes.Count(src, []byte("&")) + 1
	if n > maxFormPairs || len(src) > 1<<29 || !urlEncoded(src) {
		return false
	}
	c.pairs = slices.Grow(c.pairs, n)
	c.buf = slices.Grow(c.buf, 2*len(src))
	for more := true; more; {
		var pair []byte
		pair, src, more = bytes.Cut(src, []byte("&"))
		if len(pair) == 0 && !asWritten {
			continue
		}
		name, value, whole := bytes.Cut(pair, []byte("="))
		if !whole && !asWritten {
			return false // to some servers it has an empty value, to others none
		}
		p := formPair{start: int32(len(c.buf))}
		if !c.unescape(name) {
			return false
		}
		p.name = int32(len(c.buf))
		if !c.unescape(value) {
			return false
		}
		if asWritten {
			c.buf = append(c.buf[:p.name], pair...)
		}
		p.end = int32(len(c.buf))
		c.place(&p)
		c.pairs = append(c.pairs, p)
	}
	order := func(a, b formPair) int {
		// Pairs of one name keep their order, and so do names in brackets after the same one: servers build lists and
		// records from them, in which order matters. To some of them names in either case are one.
		// Empty pairs take no place, so that the next one begins where they do.
		return cmp.Or(compareUpper(c.buf[a.order:a.orderEnd], c.buf[b.order:b.orderEnd]), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	}
	if !slices.IsSortedFunc(c.pairs, order) {
		slices.SortFunc(c.pairs, order)
	}
	return true
}

// place finds what decides where a pair stands.
func (c *canonicalizer) place(p *formPair) {
	root, _, _ := bytes.Cut(c.buf[p.start:p.name], []byte("["))
	p.order, p.orderEnd = p.start, p.start+int32(len(root))
	if bytes.ContainsFunc(root, func(r rune) bool { return r >= utf8.RuneSelf }) {
		p.order = int32(len(c.buf))
		c.buf = append(c.buf, fold(string(root))...)
		p.orderEnd = int32(len(c.buf))
	}
}

// compareUpper compares two texts, with ASCII letters in upper case.
func compareUpper(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if x, y := upper(a[i]), upper(b[i]); x != y {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a), len(b))
}

func upper(b byte) byte {
	if structuredfield.IsLower(b) {
		return b - 'a' + 'A'
	}
	return b
}

// urlEncoded reports whether a text holds only what may stand in a form or query: the characters of a query (RFC 3986,
// section 3.4), and the brackets of nested names, which are often left as they are. No semicolon, which separates pairs
// to some servers only. Everything else is escaped by whoever makes a form.
func urlEncoded(s []byte) bool {
	for _, b := range s {
		if !structuredfield.IsLower(b|0x20) && !structuredfield.IsDigit(b) && strings.IndexByte("%&=+-._~!$'()*,:@/?[]", b) < 0 {
			return false
		}
	}
	return true
}

// unescape appends a decoded name or value to buf.
func (c *canonicalizer) unescape(s []byte) bool {
	for i := 0; i < len(s); i++ {
		b := s[i]
		switch b {
		case '+':
			b = ' '
		case '%':
			if len(s)-i < 3 {
				return false
			}
			high, ok1 := hexValue(s[i+1])
			low, ok2 := hexValue(s[i+2])
			if !ok1 || !ok2 {
				return false
			}
			b = high<<4 | low
			i += 2
		}
		c.buf = append(c.buf, b)
	}
	return true
}

// writePairs writes what query or form left.
func (c *canonicalizer) writePairs(s *digest.Digest) {
	s.Uint(uint64(len(c.pairs)))
	for _, p := range c.pairs {
		s.Bytes(c.buf[p.start:p.name])
		s.Bytes(c.buf[p.name:p.end])
	}
}
