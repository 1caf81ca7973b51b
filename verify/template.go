package verify

import (
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// generators are the kinds of generated fields by name. Each value differs from those before it.
var generators = map[string]func(*source) string{
	"uuid":     func(*source) string { return newUUID() },
	"sequence": func(s *source) string { return strconv.FormatInt(s.next(), 10) },
	"word":     func(*source) string { return strings.ToLower(rand.Text()[:10]) },
	"amount":   func(s *source) string { return strconv.FormatInt(100+s.next(), 10) },
}

// A source makes generated fields.
type source struct {
	mu sync.Mutex
	n  int64
}

func (s *source) next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return s.n
}

// newUUID returns a random UUID, version 4 (RFC 9562).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

var placeholder = regexp.MustCompile(`\$\{([^}]*)\}`)

// checkTemplate says which placeholder of a text is none.
func checkTemplate(text string, fields map[string]string) error {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if generators[m[1]] == nil && fields[m[1]] == "" {
			known := slices.Sorted(maps.Keys(generators))
			known = append(known, slices.Sorted(maps.Keys(fields))...)
			return fmt.Errorf("%s is not a generated field; there are %s", m[0], strings.Join(known, ", "))
		}
	}
	return nil
}

// values are the generated fields of one operation: a name stands for the same value all through it.
type values map[string]string

// fill returns the text with its placeholders replaced.
func (v values) fill(text string, fields map[string]string, s *source) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		name := m[2 : len(m)-1]
		value, ok := v[name]
		if !ok {
			kind := name
			if fields[name] != "" {
				kind = fields[name]
			}
			value = generators[kind](s)
			v[name] = value
		}
		return value
	})
}

// newRandom returns the source of what a seed decides.
func newRandom(seed uint64) *mathrand.Rand { return mathrand.New(mathrand.NewPCG(seed, seed)) } //nolint:gosec // repeats a run
