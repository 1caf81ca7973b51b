package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A jsonScalar is a JSON value that is neither an object nor an array. Numbers are their literal text: 1 and 1.0
// differ.
type jsonScalar struct {
	kind byte
	text string
}

// Kinds of scalars.
const (
	jsonString  = 's'
	jsonNumber  = 'n'
	jsonLiteral = 'l' // true, false or null
)

var jsonNull = jsonScalar{jsonLiteral, "null"}

// Errors of scalarAt.
var (
	errNoJSON    = errors.New("the body is not valid JSON")
	errNoMember  = errors.New("there is no such member")
	errTwice     = errors.New("two names in one object are the same, or differ in case only")
	errNotScalar = errors.New("not a string, number, boolean or null")
)

// parsePointer returns the tokens of a JSON Pointer (RFC 6901) to a part of a document.
func parsePointer(s string) ([]string, error) {
	if !strings.HasPrefix(s, "/") {
		return nil, fmt.Errorf("JSON Pointer %q does not begin with /", s)
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		// In this order, so that ~01 is ~1 and not a slash (RFC 6901, section 4).
		plain := strings.NewReplacer("~0", "", "~1", "").Replace(t)
		if strings.Contains(plain, "~") {
			return nil, fmt.Errorf("JSON Pointer %q: ~ must be followed by 0 or 1", s)
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// scalarAt returns the scalar to which a JSON Pointer leads in a body. There must be one meaning: a name that stands
// twice on the way is an error, and so is one beside another that differs in case only, because many readers match
// either.
func scalarAt(body []byte, pointer []string) (jsonScalar, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if !json.Valid(body) {
		return jsonScalar{}, errNoJSON
	}
	v, err := find(d, pointer)
	if err == nil && v == nil {
		err = errNoMember
	}
	if err != nil {
		return jsonScalar{}, err
	}
	return *v, nil
}

// find reads the value that comes next, whole, and returns the scalar in it, nil if there is none. The document is
// known to be valid.
func find(d *json.Decoder, pointer []string) (*jsonScalar, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	opening, nested := t.(json.Delim)
	switch {
	case !nested && len(pointer) == 0:
		return scalar(t), nil
	case !nested:
		return nil, nil
	case len(pointer) == 0:
		return nil, errNotScalar
	}
	var found *jsonScalar
	seen, alike := false, 0
	for i := 0; d.More(); i++ {
		name := strconv.Itoa(i)
		if opening == '{' {
			if t, err = d.Token(); err != nil {
				return nil, err
			}
			name = t.(string)
		}
		if strings.EqualFold(name, pointer[0]) {
			alike++
		}
		if name == pointer[0] && !seen {
			seen = true
			found, err = find(d, pointer[1:])
		} else {
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return nil, err
		}
	}
	if seen && alike > 1 {
		return nil, errTwice
	}
	if _, err := d.Token(); err != nil && !errors.Is(err, io.EOF) { // the closing one
		return nil, err
	}
	return found, nil
}

func scalar(t json.Token) *jsonScalar {
	switch v := t.(type) {
	case string:
		return &jsonScalar{jsonString, v}
	case json.Number:
		return &jsonScalar{jsonNumber, v.String()}
	case bool:
		return &jsonScalar{jsonLiteral, strconv.FormatBool(v)}
	}
	return &jsonNull
}
