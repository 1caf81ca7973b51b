package fingerprint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/requestbody"
)

// ParseJSONPointer returns the decoded tokens of a JSON Pointer (RFC 6901); none for the whole document.
func ParseJSONPointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	if pointer[0] != '/' {
		return nil, fmt.Errorf("JSON Pointer %q does not begin with /", pointer)
	}
	if !utf8.ValidString(pointer) {
		return nil, fmt.Errorf("JSON Pointer %q is not UTF-8", pointer)
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, token := range tokens {
		for j := range len(token) {
			if token[j] == '~' && (j+1 == len(token) || token[j+1] != '0' && token[j+1] != '1') {
				return nil, fmt.Errorf("JSON Pointer %q: ~ must be followed by 0 or 1", pointer)
			}
		}
		// In this order, so that ~01 is ~1 and not a slash (RFC 6901, section 4).
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// A pointerNode is a place in a JSON document to which, or through which, pointers lead. The keys of its map are tokens
// in the escaped form in which the canonicalizer writes names.
type pointerNode struct {
	next map[string]*pointerNode
	end  bool
}

// add adds a pointer below n. If case does not matter, its tokens are folded, as names are then.
func (n *pointerNode) add(tokens []string, anyCase bool) {
	for _, token := range tokens {
		key := string(appendJSONEscaped(nil, token))
		if anyCase {
			key = fold(key)
		}
		next := n.next[key]
		if next == nil {
			next = &pointerNode{}
			if n.next == nil {
				n.next = map[string]*pointerNode{}
			}
			n.next[key] = next
		}
		n = next
	}
	n.end = true
}

// everyElement is the token that stands for every element of an array. In an object it is an ordinary name.
const everyElement = "*"

// Errors of the functions that look for fields in bodies.
var (
	errFieldUnreadable = errors.New("body is in a content coding that can't be undone")
	errFieldSpooled    = errors.New("body is too large to look for it")
	errFieldMalformed  = errors.New("body is not valid JSON")
	ErrAmbiguous       = errors.New("two names in one object are the same, or differ in case only")
	errFieldNoString   = errors.New("not a string")
)

// Elsewhere in the body a name may occur twice.
var fieldRules = jsonRules{duplicates: true}

// bodyField returns the string as JSON text, nil if there is none or it is null.
func bodyField(b *requestbody.Body, tokens []string) ([]byte, error) {
	switch {
	case b.Opaque != "":
		return nil, errFieldUnreadable
	case b.Streamed:
		return nil, errFieldSpooled
	case b.PlainSize == 0:
		return nil, nil
	}
	c := takeCanonicalizer()
	defer c.release()
	if !c.document(b.Plain, &fieldRules) {
		return nil, errFieldMalformed
	}
	at := 0
	for _, token := range tokens {
		c.pos = at
		var found bool
		var err error
		if at, found, err = c.find(token); err != nil || !found {
			return nil, err
		}
	}
	c.pos = at
	c.space()
	switch c.src[c.pos] {
	case '"':
	case 'n': // null
		return nil, nil
	default:
		return nil, errFieldNoString
	}
	quoted, _ := c.string(nil)
	return quoted, nil
}

// find returns where the member or element that token names begins, in the value at c.pos. The document is known to be
// valid. A member whose name differs from the token only in case is not the member; beside it, it makes the field
// ambiguous.
func (c *canonicalizer) find(token string) (at int, found bool, err error) {
	c.space()
	opening := c.src[c.pos]
	if opening != '{' && opening != '[' {
		return 0, false, nil
	}
	c.pos++
	name := string(appendJSONEscaped(nil, token))
	folded, alike := fold(name), 0
	for i := 0; ; i++ {
		c.space()
		if c.take(opening + 2) { // } or ]
			if found && alike > 1 {
				return 0, false, ErrAmbiguous
			}
			return at, found, nil
		}
		here := opening == '[' && strconv.Itoa(i) == name
		if opening == '{' {
			c.buf, _ = c.string(c.buf[:0])
			member := string(c.buf[1 : len(c.buf)-1])
			if here = member == name; here || fold(member) == folded {
				alike++
			}
			c.space()
			c.take(':')
		}
		if here {
			at, found = c.pos, true
		}
		c.value(0, pointerSet{})
		c.space()
		c.take(',')
	}
}
