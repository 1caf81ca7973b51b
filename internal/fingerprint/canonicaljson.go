package fingerprint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/structuredfield"
)

// maxJSONDepth is how deep arrays and objects may be nested in a body that is canonicalised.
const maxJSONDepth = 256

// jsonRules say which parts of a JSON document do not count.
type jsonRules struct {
	pointers     *pointerNode // the places to which the pointers lead
	names        [][]byte     // member names in escaped form, at any depth, in upper or lower case
	anyCase      bool         // the pointers match members in upper or lower case
	nullIsAbsent bool
	duplicates   bool // names may occur twice; the order of the members is then undefined
}

// exclusive reports whether the rules name a part that does not count.
func (r *jsonRules) exclusive() bool { return r.pointers != nil || len(r.names) > 0 }

func (r *jsonRules) exclude(tokens []string) {
	if r.pointers == nil {
		r.pointers = &pointerNode{}
	}
	r.pointers.add(tokens, r.anyCase)
}

// A canonicalizer brings JSON documents, queries and forms into canonical form. One goroutine uses it at a time. It is
// taken from a pool and returned to the pool, so that small requests need no memory of their own.
//
// Canonical JSON is the document without white space. The members of each object are sorted by name, each string has
// only the escapes that it needs, and each number is as it was written. Two documents have the same canonical form only
// if they mean the same to every reader. Where readers differ there is none: RFC 8259 leaves duplicate names and lone
// surrogates open. Many readers, such as encoding/json, ignore the case of names. If two names differ only in case,
// their order decides which value counts: so they are duplicates too. This is not the form of RFC 8785, which rounds
// numbers to float64.
type canonicalizer struct {
	src []byte
	pos int
	out []byte // the result; shares memory with buf or moved

	rules   *jsonRules
	buf     []byte         // the document, as canonical as possible without moving members
	members []jsonMember   // members of the objects that are open
	active  []*pointerNode // places that the pointers have reached, in the values that are open
	objects []jsonObject   // objects whose members have to be moved or left out
	ordered []jsonMember   // the members of these objects
	moved   []byte         // the document after the members were moved

	folded    []uint64 // hashes of the folded names of one object
	ambiguous bool     // no canonical form: two names of an object are the same, or some reader takes them so

	pairs []formPair
}

// A jsonMember is a member of an object, by its place in buf. The name includes its quotes.
type jsonMember struct {
	start, nameEnd, end int32
	excluded            bool
}

// A jsonObject is written as ordered[from:to] instead of buf[start:end].
type jsonObject struct{ start, end, from, to int32 }

// A pointerSet is active[from:to].
type pointerSet struct{ from, to int }

var canonicalizers = sync.Pool{New: func() any { return &canonicalizer{} }}

func takeCanonicalizer() *canonicalizer { return canonicalizers.Get().(*canonicalizer) }

// release gives c back to the pool, unless a large body has made it large.
func (c *canonicalizer) release() {
	if c.forget() {
		canonicalizers.Put(c)
	}
}

// forget drops all references to the request, and reports whether c is small enough to be kept.
func (c *canonicalizer) forget() bool {
	const enough = 32 << 10
	if max(cap(c.buf), cap(c.moved), cap(c.members)*16, cap(c.ordered)*16, cap(c.objects)*16, cap(c.active)*8,
		cap(c.pairs)*20, cap(c.folded)*8) > enough {
		return false
	}
	c.src, c.out, c.rules = nil, nil, nil
	return true
}

// json puts the canonical form of a document into c.out, and reports whether it has one. Time and memory are
// proportional to its length, except for the sorting of members.
func (c *canonicalizer) json(src []byte, rules *jsonRules) bool {
	if !c.document(src, rules) {
		return false
	}
	c.out = c.buf
	if len(c.objects) > 0 {
		// Objects were noted in the order in which they close; move needs them in the order in which they open.
		slices.SortFunc(c.objects, func(a, b jsonObject) int { return cmp.Compare(a.start, b.start) })
		c.moved = slices.Grow(c.moved[:0], len(c.buf))
		c.move(0, int32(len(c.buf)))
		c.out = c.moved
	}
	return true
}

// document reads a document into buf, and reports whether it is valid.
func (c *canonicalizer) document(src []byte, rules *jsonRules) bool {
	// Places in buf are kept in 32 bits; buf is never longer than src.
	if len(src) > math.MaxInt32 || !utf8.Valid(src) {
		return false
	}
	c.src, c.pos, c.rules, c.ambiguous = src, 0, rules, false
	c.buf = slices.Grow(c.buf[:0], len(src))
	c.members, c.active, c.objects, c.ordered = c.members[:0], c.active[:0], c.objects[:0], c.ordered[:0]
	if rules.pointers != nil {
		c.active = append(c.active, rules.pointers)
	}
	if !c.value(0, pointerSet{0, len(c.active)}) {
		return false
	}
	c.space()
	return c.pos == len(c.src)
}

// value reads the value at pos. depth is the number of arrays and objects around it.
func (c *canonicalizer) value(depth int, at pointerSet) bool {
	c.space()
	if c.pos == len(c.src) {
		return false
	}
	switch b := c.src[c.pos]; b {
	case '{':
		return depth < maxJSONDepth && c.object(depth+1, at)
	case '[':
		return depth < maxJSONDepth && c.array(depth+1, at)
	case '"':
		var ok bool
		c.buf, ok = c.string(c.buf)
		return ok
	case 'n':
		return c.literal("null")
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	default:
		return c.number()
	}
}

func (c *canonicalizer) object(depth int, at pointerSet) bool {
	start, base := len(c.buf), len(c.members)
	inOrder, whole, plain := true, true, true
	c.pos++
	c.buf = append(c.buf, '{')
	for c.space(); !c.take('}'); c.space() {
		if len(c.members) > base {
			if !c.take(',') {
				return false
			}
			c.buf = append(c.buf, ',')
			c.space()
		}
		m, ok := c.member(depth, at)
		if !ok {
			return false
		}
		if n := len(c.members); n > base && bytes.Compare(c.name(c.members[n-1]), c.name(m)) >= 0 {
			inOrder = false
		}
		whole = whole && !m.excluded
		plain = plain && foldsToItself(c.name(m))
		c.members = append(c.members, m)
	}
	c.buf = append(c.buf, '}')

	members := c.members[base:]
	if !inOrder {
		slices.SortFunc(members, func(a, b jsonMember) int { return bytes.Compare(c.name(a), c.name(b)) })
	}
	if !c.rules.duplicates && c.sameNames(members, inOrder, plain) {
		c.ambiguous = true
		return false
	}
	if !inOrder || !whole {
		from := len(c.ordered)
		for _, m := range members {
			if !m.excluded {
				c.ordered = append(c.ordered, m)
			}
		}
		c.objects = append(c.objects, jsonObject{int32(start), int32(len(c.buf)), int32(from), int32(len(c.ordered))})
	}
	c.members = c.members[:base]
	return true
}

// sameNames reports whether some reader takes the names of two members for the same. The members are those of one
// object, sorted by name. inOrder says that they were sorted without repetition, plain that no two names differ only in
// case.
func (c *canonicalizer) sameNames(members []jsonMember, inOrder, plain bool) bool {
	for i := 1; i < len(members) && !inOrder; i++ {
		if bytes.Equal(c.name(members[i-1]), c.name(members[i])) {
			return true
		}
	}
	if plain || len(members) < 2 {
		return false
	}
	// Each name is folded once, so that the cost of many long names is proportional to their length. If two hashes
	// collide, the only result is that the body is compared byte by byte.
	c.folded = c.folded[:0]
	for _, m := range members {
		c.folded = append(c.folded, foldedHash(c.name(m)))
	}
	slices.Sort(c.folded)
	for i := 1; i < len(c.folded); i++ {
		if c.folded[i-1] == c.folded[i] {
			return true
		}
	}
	return false
}

// member reads a member. An excluded member stays in buf until its object is moved: its name still counts as a
// duplicate of others.
func (c *canonicalizer) member(depth int, at pointerSet) (m jsonMember, ok bool) {
	if c.pos == len(c.src) || c.src[c.pos] != '"' {
		return m, false
	}
	m.start = int32(len(c.buf))
	if c.buf, ok = c.string(c.buf); !ok {
		return m, false
	}
	m.nameEnd = int32(len(c.buf))
	if c.space(); !c.take(':') {
		return m, false
	}
	c.buf = append(c.buf, ':')

	mark, start := len(c.active), len(c.buf)
	if at.from < at.to {
		m.excluded = c.follow(at, c.name(m))
	}
	if !c.value(depth, pointerSet{mark, len(c.active)}) {
		return m, false
	}
	c.active = c.active[:mark]
	m.end = int32(len(c.buf))
	if c.rules.nullIsAbsent && string(c.buf[start:]) == "null" {
		m.excluded = true
	}
	for _, name := range c.rules.names {
		m.excluded = m.excluded || bytes.EqualFold(name, c.name(m))
	}
	return m, true
}

// name returns a member's name without its quotes. Names are compared in escaped form: two escaped names are equal
// exactly if the names are.
func (c *canonicalizer) name(m jsonMember) []byte { return c.buf[m.start+1 : m.nameEnd-1] }

func (c *canonicalizer) array(depth int, at pointerSet) bool {
	c.pos++
	c.buf = append(c.buf, '[')
	kept := 0
	for i := 0; ; i++ {
		if c.space(); c.take(']') {
			break
		}
		if i > 0 {
			if !c.take(',') {
				return false
			}
		}
		start, objects, ordered, mark := len(c.buf), len(c.objects), len(c.ordered), len(c.active)
		if kept > 0 {
			c.buf = append(c.buf, ',')
		}
		excluded := false
		if at.from < at.to {
			var index [20]byte
			byIndex := c.follow(at, strconv.AppendInt(index[:0], int64(i), 10))
			excluded = c.follow(at, []byte(everyElement)) || byIndex
		}
		if !c.value(depth, pointerSet{mark, len(c.active)}) {
			return false
		}
		c.active = c.active[:mark]
		if excluded {
			c.buf, c.objects, c.ordered = c.buf[:start], c.objects[:objects], c.ordered[:ordered]
		} else {
			kept++
		}
	}
	c.buf = append(c.buf, ']')
	return true
}

// follow adds to active the places that the pointers at a value reach in its member or element of that name. It reports
// whether one of the pointers ends there.
func (c *canonicalizer) follow(at pointerSet, name []byte) (end bool) {
	if c.rules.anyCase {
		name = []byte(fold(string(name)))
	}
	for _, n := range c.active[at.from:at.to] {
		if next := n.next[string(name)]; next != nil {
			c.active = append(c.active, next)
			end = end || next.end
		}
	}
	return end
}

// move appends buf[from:to] to moved, with the members of its objects in order. Each byte is copied once, at whatever
// depth it is.
func (c *canonicalizer) move(from, to int32) {
	for {
		i, _ := slices.BinarySearchFunc(c.objects, from, func(o jsonObject, at int32) int { return cmp.Compare(o.start, at) })
		if i == len(c.objects) || c.objects[i].start >= to {
			c.moved = append(c.moved, c.buf[from:to]...)
			return
		}
		o := c.objects[i]
		c.moved = append(append(c.moved, c.buf[from:o.start]...), '{')
		for i, m := range c.ordered[o.from:o.to] {
			if i > 0 {
				c.moved = append(c.moved, ',')
			}
			c.move(m.start, m.end)
		}
		c.moved = append(c.moved, '}')
		from = o.end
	}
}

func (c *canonicalizer) space() {
	for c.pos < len(c.src) {
		switch c.src[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// take moves past b if b is at pos.
func (c *canonicalizer) take(b byte) bool {
	if c.pos < len(c.src) && c.src[c.pos] == b {
		c.pos++
		return true
	}
	return false
}

func (c *canonicalizer) literal(word string) bool {
	end := c.pos + len(word)
	if end > len(c.src) || string(c.src[c.pos:end]) != word {
		return false
	}
	c.pos = end
	c.buf = append(c.buf, word...)
	return true
}

func (c *canonicalizer) number() bool {
	start := c.pos
	c.take('-')
	if !c.take('0') && !c.digits() {
		return false
	}
	if c.take('.') && !c.digits() {
		return false
	}
	if c.take('e') || c.take('E') {
		if !c.take('-') {
			c.take('+')
		}
		if !c.digits() {
			return false
		}
	}
	c.buf = append(c.buf, c.src[start:c.pos]...)
	return true
}

// digits moves past one or more digits.
func (c *canonicalizer) digits() bool {
	start := c.pos
	for c.pos < len(c.src) && structuredfield.IsDigit(c.src[c.pos]) {
		c.pos++
	}
	return c.pos > start
}

// string moves past the string that begins at pos, and appends it to dst with its quotes.
func (c *canonicalizer) string(dst []byte) ([]byte, bool) {
	from := c.pos // start of the part that is not yet in dst
	for i := c.pos + 1; i < len(c.src); {
		switch b := c.src[i]; {
		case b == '"':
			c.pos = i + 1
			return append(dst, c.src[from:c.pos]...), true
		case b == '\\':
			r, size := unescape(c.src[i:])
			if size == 0 {
				return dst, false
			}
			dst = appendJSONRune(append(dst, c.src[from:i]...), r)
			i += size
			from = i
		case b < ' ':
			return dst, false
		default:
			i += plain(c.src[i:])
		}
	}
	return dst, false
}

// plain returns how many bytes, at least one, stand for themselves at the beginning of s, the inside of a string that
// begins with such a byte. It looks at eight bytes at once: the lowest bit that is left marks the first byte that is a
// quote, a backslash or a control character.
func plain(s []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for i := 0; ; i += 8 {
		if len(s)-i < 8 {
			return max(1, i)
		}
		word := binary.LittleEndian.Uint64(s[i:])
		quote, backslash := word^ones*'"', word^ones*'\\'
		found := ((word-ones*' ')&^word | (quote-ones)&^quote | (backslash-ones)&^backslash) & high
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
}

// unescape reads the escape with which s begins. A size of 0 means that there is none, or that it is half of a
// surrogate pair.
func unescape(s []byte) (r rune, size int) {
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case '"', '\\', '/':
		return rune(s[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := hex4(s[2:])
		if !ok {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(s) < 8 || s[6] != '\\' || s[7] != 'u' {
			return 0, 0
		}
		low, ok := hex4(s[8:])
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return 0, 0
		}
		return r, 12
	}
	return 0, 0
}

func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for _, b := range s[:4] {
		n, ok := hexValue(b)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(n)
	}
	return r, true
}

// hexValue returns the value of a hexadecimal digit.
func hexValue(b byte) (n byte, ok bool) {
	switch {
	case structuredfield.IsDigit(b):
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}

// appendJSONRune appends the canonical form of r in a string. It is never longer than any other way to write r.
func appendJSONRune(dst []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if r < ' ' {
		return append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// appendJSONEscaped appends s as the inside of a canonical string.
func appendJSONEscaped(dst []byte, s string) []byte {
	for _, r := range s {
		dst = appendJSONRune(dst, r)
	}
	return dst
}
