package fingerprint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/requestbody"
)

// KeyField returns the string to which a JSON Pointer leads in a body. In a form the pointer names a field; other
// bodies are read as JSON. The string is found only if there is exactly one meaning. It is an error if the body
// is malformed, if a name on the way occurs twice, in upper or lower case, or if the value is neither a string nor
// null. So a malformed key is never taken for no key. An empty body has no fields. Nor has a body whose type is
// neither JSON nor a form and which is not JSON.
func KeyField(b *requestbody.Body, contentType []string, pointer string) (value string, found bool, err error) {
	tokens, err := ParseJSONPointer(pointer)
	if err != nil {
		return "", false, err
	}
	media := ParseMediaType(contentType)
	if media.Form() && b.Opaque == "" && !b.Streamed && urlEncoded(b.Plain) {
		value, found, err = formField(b.Plain, tokens)
	} else { // also for a body that is called a form but is none: some clients call JSON a form
		var quoted []byte
		if quoted, err = bodyField(b, tokens); err == nil && quoted != nil {
			found, err = true, json.Unmarshal(quoted, &value)
		}
		if media.hasNoFields() && (errors.Is(err, errFieldMalformed) || errors.Is(err, errFieldUnreadable) || errors.Is(err, errFieldSpooled)) {
			return "", false, nil
		}
	}
	if err != nil {
		return "", false, fmt.Errorf("body field %s: %w", pointer, err)
	}
	return value, found, nil
}

// hasNoFields reports whether the type of a body is neither JSON nor a form. A body without a type may be either.
func (m *mediaType) hasNoFields() bool {
	return m.name != "" && m.name != "application/json" && !strings.HasSuffix(m.name, "+json") && m.name != "application/x-www-form-urlencoded"
}

// formField returns the value of the field that tokens name in a form.
func formField(src []byte, tokens []string) (value string, found bool, err error) {
	folded := make([]string, len(tokens))
	for i, token := range tokens {
		folded[i] = fold(token)
	}
	alike := 0
	for pair := range bytes.SplitSeq(src, []byte("&")) {
		escapedName, escapedValue, _ := strings.Cut(string(pair), "=")
		name, err := url.QueryUnescape(escapedName)
		if err != nil {
			return "", false, errFieldNoForm
		}
		if !isFormField(fold(name), folded) {
			continue
		}
		alike++
		if !isFormField(name, tokens) {
			continue
		}
		if value, err = url.QueryUnescape(escapedValue); err != nil {
			return "", false, errFieldNoForm
		}
		found = true
	}
	if found && alike > 1 {
		return "", false, ErrAmbiguous
	}
	return value, found, nil
}

// isFormField reports whether tokens name the field of that name in a form.
func isFormField(name string, tokens []string) bool {
	return len(tokens) == 1 && tokens[0] == name || slices.Equal(formPath(name), tokens)
}

// formPath returns the tokens of a form field's name. Servers build records and lists from names in brackets:
// card[code] counts as /card/code and as the literal name.
func formPath(name string) []string {
	first, rest, nested := strings.Cut(name, "[")
	if !nested {
		return []string{name}
	}
	return append([]string{first}, strings.Split(strings.TrimSuffix(rest, "]"), "][")...)
}
