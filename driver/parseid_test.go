package driver

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

func FuzzParseID(f *testing.F) {
	f.Add(ID(bytes.Repeat([]byte{0xa7}, len(ID{}))).String())
	f.Add(base64.RawURLEncoding.EncodeToString(make([]byte, 48)))
	f.Add(strings.Repeat("_", 64))
	f.Add(strings.Repeat("A", 60) + "\n\n\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseID(s); err == nil && id.String() != s {
			t.Errorf("%q parses as %v: an operation has one public id", s, id)
		}
	})
}
