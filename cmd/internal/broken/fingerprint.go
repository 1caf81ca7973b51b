package broken

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fingerprint says what a request asks for: a key stands for one such request.
func (l *Layer) fingerprint(r *http.Request, body []byte) string {
	path, query, text := r.URL.EscapedPath(), r.URL.RawQuery, string(canonical(r.Header.Get("Content-Type"), body))
	if l.bug == "no-path" {
		path = ""
	}
	if l.bug == "no-query" {
		query = ""
	}
	if l.bug == "loose-types" {
		text = strings.ReplaceAll(text, `"`, "")
	}
	if l.bug == "weak-fingerprint" {
		text = strconv.Itoa(len(text))
	}
	return digest(r.Method, path, query, text)
}

// canonical returns a JSON body in one form, whatever the order of its members and its white space, and any
// other body as it is. Where decoding could make two bodies one, as with a name that comes twice or half a surrogate,
// the body stays as it is too.
func canonical(contentType string, body []byte) []byte {
	kind, _, err := mime.ParseMediaType(contentType)
	isJSON := err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
	if !isJSON || !json.Valid(body) || !utf8.Valid(body) {
		return body
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // 1.0 is not 1
	v, err := value(d)
	if err != nil {
		return body
	}
	form, err := json.Marshal(v) // sorts the members
	if err != nil || bytes.ContainsRune(form, utf8.RuneError) {
		return body
	}
	return form
}

var errTwice = errors.New("a name comes twice")

// value reads one JSON value.
func value(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		members := map[string]any{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			if _, twice := members[name.(string)]; twice {
				return nil, errTwice
			}
			if members[name.(string)], err = value(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return members, err
	case json.Delim('['):
		elements := []any{}
		for d.More() {
			e, err := value(d)
			if err != nil {
				return nil, err
			}
			elements = append(elements, e)
		}
		_, err = d.Token()
		return elements, err
	}
	return token, nil
}
