package fingerprint

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/semelhq/semel/internal/requestbody"
)

// A Redactor removes named fields from request bodies before they are stored. It ignores the case of their
// names, because many handlers do.
type Redactor struct {
	json     jsonRules
	pointers [][]string // the same, folded, for forms
}

// NewRedactor reports everything that is wrong with the pointers. Without pointers there is nothing to remove, and it
// returns nil.
func NewRedactor(pointers []string) (*Redactor, error) {
	if len(pointers) == 0 {
		return nil, nil
	}
	r := &Redactor{json: jsonRules{anyCase: true}}
	var errs []error
	for _, pointer := range pointers {
		tokens, err := ParseJSONPointer(pointer)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("redacted field: %w", err))
		case len(tokens) == 0:
			errs = append(errs, errors.New("redacted field: an empty JSON Pointer stands for the whole body"))
		default:
			r.json.exclude(tokens)
			folded := make([]string, len(tokens))
			for i, token := range tokens {
				folded[i] = fold(token)
			}
			r.pointers = append(r.pointers, folded)
		}
	}
	return r, errors.Join(errs...)
}

// ErrRedact means that a body's fields can't be found with certainty, so that the request can't be stored without some
// of them.
var ErrRedact = errors.New("some fields of the request are not to be stored, but can't be told")

var errFieldNoForm = errors.New("body holds what no form does, so that its fields can't be told")

var errRedactKind = errors.New("body is neither JSON nor a form in UTF-8, so that its fields can't be told")

// Body returns a body without the named fields, and whether it had any. A body that had none is to be stored as it was
// sent. If a body can't be parsed, its fields can't be found. That is an error, so that these fields are never stored.
func (r *Redactor) Body(b *requestbody.Body, contentType []string) (rest []byte, had bool, err error) {
	media := ParseMediaType(contentType)
	switch {
	case b.PlainSize == 0:
		return nil, false, nil
	case b.Opaque != "":
		err = errFieldUnreadable
	case b.Streamed:
		err = errFieldSpooled
	case media.JSON():
		rest, had, err = r.jsonBody(b.Plain)
	case media.Form():
		rest, had, err = r.form(b.Plain)
	default:
		err = errRedactKind
	}
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrRedact, err)
	}
	return rest, had, nil
}

func (r *Redactor) jsonBody(src []byte) (rest []byte, had bool, err error) {
	whole, without := takeCanonicalizer(), takeCanonicalizer()
	defer whole.release()
	defer without.release()
	if !whole.json(src, &jsonRules{}) || !without.json(src, &r.json) {
		if whole.ambiguous {
			return nil, false, ErrAmbiguous
		}
		return nil, false, errFieldMalformed
	}
	return bytes.Clone(without.out), !bytes.Equal(whole.out, without.out), nil
}

func (r *Redactor) form(src []byte) (rest []byte, had bool, err error) {
	if !urlEncoded(src) {
		return nil, false, errFieldNoForm
	}
	kept := slices.DeleteFunc(bytes.Split(src, []byte("&")), func(pair []byte) bool {
		escaped, _, _ := bytes.Cut(pair, []byte("="))
		name, bad := url.QueryUnescape(string(escaped))
		if bad != nil {
			err = bad
			return false
		}
		hit := r.names(name)
		had = had || hit
		return hit
	})
	if err != nil {
		return nil, false, fmt.Errorf("read form: %w", err)
	}
	return bytes.Join(kept, []byte("&")), had, nil
}

// names reports whether a pointer leads to the field of that name, or to something that contains the field.
func (r *Redactor) names(name string) bool {
	name = fold(name)
	path := append(formPath(name), "") // a field that occurs several times is a list, with or without brackets
	return slices.ContainsFunc(r.pointers, func(pointer []string) bool {
		if len(pointer) == 1 && pointer[0] == name {
			return true
		}
		return len(pointer) <= len(path) && slices.EqualFunc(pointer, path[:len(pointer)], func(token, part string) bool {
			return token == part || token == everyElement
		})
	})
}
