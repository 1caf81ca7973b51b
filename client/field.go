package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// fields is a body of JSON that is to hold the key.
type fields struct {
	text    []byte
	members map[string]json.RawMessage
}

var errNoObject = errors.New("client: a body that is to hold the key has to be an object of JSON")

// fieldsOf reads a request's body, up to limit.
func fieldsOf(r *http.Request, limit int64) (*fields, error) {
	b, err := bodyOf(r, true, limit)
	if err != nil {
		return nil, err
	}
	if b.first == nil {
		return nil, errNoObject
	}
	defer b.first.Close()
	f := &fields{}
	if f.text, err = io.ReadAll(io.LimitReader(b.first, limit+1)); err != nil {
		return nil, fmt.Errorf("client: read request body: %w", err)
	}
	if int64(len(f.text)) > limit {
		return nil, fmt.Errorf("client: %w: it is larger than %d bytes", ErrBodyNotRepeatable, limit)
	}
	if json.Unmarshal(f.text, &f.members) != nil || f.members == nil {
		return nil, errNoObject
	}
	return f, nil
}

// own returns the key that the caller has put into the body.
func (f *fields) own(name string) []string {
	var key string
	if raw, ok := f.members[name]; !ok || json.Unmarshal(raw, &key) != nil {
		return nil
	}
	return []string{key}
}

// with returns the body with a key; as it stands, if it has one.
func (f *fields) with(name, key string) body {
	text := f.text
	if _, ok := f.members[name]; !ok {
		member, err := json.Marshal(map[string]string{name: key})
		if err != nil {
			panic(err) // two texts can be written
		}
		member = member[:len(member)-1]
		if len(f.members) > 0 {
			member = append(member, ',')
		}
		text = append(member, text[bytes.IndexByte(text, '{')+1:]...)
	}
	again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	first, _ := again()
	return body{first: first, again: again, length: int64(len(text))}
}
