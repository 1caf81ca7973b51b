package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// Mint says how the key of a request that carries none is made.
type Mint struct {
	// Fields are what tells operations apart, each of them one of: a JSON Pointer to a string, number or boolean in the
	// body ("/order_id"), "header:NAME", "query:NAME", "method", "path". A request in which one of them is missing is
	// refused.
	Fields []string
	// Window is how long a repeat is taken for one, from the completion of the first. It is the retention of such
	// requests, so it is at least deadline + lease. Defaults to the route's retention.
	Window time.Duration
}

// Prefixes of fields that are not in the body.
const (
	headerField = "header:"
	queryField  = "query:"
)

// checkField reports a field that can't be one.
func checkField(field string) error {
	header, isHeader := strings.CutPrefix(field, headerField)
	query, isQuery := strings.CutPrefix(field, queryField)
	switch {
	case field == "method", field == "path", isQuery && query != "":
		return nil
	case isHeader:
		if (semel.Policy{KeyHeaders: []string{header}}).Validate() != nil {
			return fmt.Errorf("%q is not a header name", header)
		}
		return nil
	case strings.HasPrefix(field, "/"):
		_, err := parsePointer(field)
		return err
	}
	return fmt.Errorf(`%q is none of a JSON Pointer such as "/order_id", "header:NAME", "query:NAME", "method" and "path"`, field)
}

const mintedPrefix = "minted-"

// minter returns the function that makes a route's keys: digests of the route's pattern and of what its fields hold, so
// that a key gives nothing away. Each part is written with its length, and a field with the number of its
// values, so that no two requests that differ in a field get one key.
func (m Mint) minter(pattern string, secret []byte) func(*http.Request, []byte) (string, error) {
	return func(r *http.Request, body []byte) (string, error) {
		d := mintDigest{newDigest(secret)}
		d.text("semel gateway minted key 1")
		d.text(pattern)
		for _, field := range m.Fields {
			values, err := fieldValues(r, body, field)
			if err != nil {
				return "", err
			}
			d.text(field)
			d.number(len(values))
			for _, v := range values {
				d.text(v)
			}
		}
		return mintedPrefix + base64.RawURLEncoding.EncodeToString(d.Sum(nil)[:24]), nil
	}
}

func newDigest(secret []byte) hash.Hash {
	if len(secret) == 0 {
		return sha256.New()
	}
	return hmac.New(sha256.New, secret)
}

type mintDigest struct{ hash.Hash }

func (d mintDigest) number(n int) {
	d.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

func (d mintDigest) text(s string) {
	d.number(len(s))
	d.Write([]byte(s))
}

// fieldValues returns what a field holds. Missing and empty are the same: a client that forgot its order number must
// not share a key with another that did.
func fieldValues(r *http.Request, body []byte, field string) ([]string, error) {
	var values []string
	switch {
	case field == "method":
		return []string{r.Method}, nil
	case field == "path":
		return []string{r.URL.EscapedPath()}, nil
	case strings.HasPrefix(field, "/"):
		return bodyField(body, field)
	case strings.HasPrefix(field, queryField):
		values = r.URL.Query()[strings.TrimPrefix(field, queryField)]
	default:
		values = r.Header.Values(strings.TrimPrefix(field, headerField))
	}
	if strings.Join(values, "") == "" {
		return nil, fmt.Errorf("%s is missing", field)
	}
	return values, nil
}

func bodyField(body []byte, field string) ([]string, error) {
	if body == nil {
		return nil, fmt.Errorf("%s: the body is too large to look for it", field)
	}
	pointer, err := parsePointer(field)
	if err != nil {
		return nil, err // refused when the route was made
	}
	v, err := scalarAt(body, pointer)
	switch {
	case errors.Is(err, errNoMember), err == nil && (v == jsonNull || v == jsonScalar{kind: jsonString}):
		return nil, fmt.Errorf("%s is missing in the body", field)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return []string{string(v.kind) + v.text}, nil
}

// mintRandom makes a key that no other request has.
func mintRandom(*http.Request, []byte) (string, error) { return mintedPrefix + rand.Text(), nil }
