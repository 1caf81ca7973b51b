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

// maxFormPairs is how many pairs a query or form may have to be canonicalised. It bounds the cost of sorting them.
const maxFormPairs = 10_000

// A formPair is a name and its value, by their places in buf. buf[order:orderEnd] decides the pair's place in the
// order: it is the name up to a bracket, folded if it has letters beyond ASCII.
type formPair struct{ start, name, end, order, orderEnd int32 }

// query puts the pairs of a query in normal order into c.pairs, and reports whether it could. It can if a form would
// have written the query that way. Names are decoded to find their order. Pairs are compared as they are written,
// because only some servers read a plus sign as a space.
func (c *canonicalizer) query(query string) bool {
	c.pairs = c.pairs[:0]
	if query == "" {
		return true
	}
	// The text comes first in buf, then what is decoded from it.
	c.buf = append(c.buf[:0], query...)
	return c.split(c.buf, true)
}

// form puts the pairs of a body of application/x-www-form-urlencoded, decoded and in normal order, into c.pairs, and
// reports whether it could. It can't if something else was sent as a form by mistake, such as JSON by a client that
// gives every body this type. The handler of such a body reads it as it is, where 1+1 is not 1 1.
func (c *canonicalizer) form(body []byte) bool {
	c.pairs, c.buf = c.pairs[:0], c.buf[:0]
	return c.split(body, false)
}

// split reads pairs. They are in buf already or are appended to it.
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
			return false // for some servers it has an empty value, for others none
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
		// Pairs with the same name keep their order, and so do names in brackets after the same name: servers build lists and
		// records from them, and order matters there. Some servers ignore the case of names. Empty pairs take no place: the
		// next pair begins where they do.
		return cmp.Or(compareUpper(c.buf[a.order:a.orderEnd], c.buf[b.order:b.orderEnd]), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	}
	if !slices.IsSortedFunc(c.pairs, order) {
		slices.SortFunc(c.pairs, order)
	}
	return true
}

// place finds the part of a pair that decides its place in the order.
func (c *canonicalizer) place(p *formPair) {
	root, _, _ := bytes.Cut(c.buf[p.start:p.name], []byte("["))
	p.order, p.orderEnd = p.start, p.start+int32(len(root))
	if bytes.ContainsFunc(root, func(r rune) bool { return r >= utf8.RuneSelf }) {
		p.order = int32(len(c.buf))
		c.buf = append(c.buf, fold(string(root))...)
		p.orderEnd = int32(len(c.buf))
	}
}

// compareUpper compares two texts, with ASCII letters as upper case.
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

// urlEncoded reports whether a text holds only characters that may occur in a form or query: the characters of a query
// (RFC 3986, section 3.4), and the brackets of nested names, which are often not escaped. A semicolon is not allowed,
// because it separates pairs for some servers only. Whoever makes a form escapes everything else.
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

// writePairs writes the pairs that query or form has found.
func (c *canonicalizer) writePairs(s *digest.Digest) {
	s.Uint(uint64(len(c.pairs)))
	for _, p := range c.pairs {
		s.Bytes(c.buf[p.start:p.name])
		s.Bytes(c.buf[p.name:p.end])
	}
}
