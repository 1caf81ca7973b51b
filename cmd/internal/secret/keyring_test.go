package secret

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

func TestAFileOfEncryptionKeys(t *testing.T) {
	t.Parallel()
	write := func(text string, mode os.FileMode) string {
		name := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	one, two := strings.Repeat("01", 32), strings.Repeat("02", 32)
	k, err := Keyring(write("# new\n2027 "+two+"\n\n2026\t"+one+"\r\n", 0o600))
	if err != nil {
		t.Fatal(err)
	}
	old, err := Keyring(write("2026 "+one, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	answer := &semel.Response{Status: 201, Body: []byte("x")}
	if sealed := k.Seal(semel.ID{}, semel.Token{}, answer); !strings.HasSuffix(sealed.Codec, ":2027") {
		t.Errorf("encrypted with %s, want the first key", sealed.Codec)
	}
	if got, err := k.Open(semel.ID{}, &semel.Record{Response: old.Seal(semel.ID{}, semel.Token{}, answer)}); err != nil || string(got.Body) != "x" {
		t.Errorf("of the old key: %+v, %v", got, err)
	}
	if k, err := Keyring(""); k != nil || err != nil {
		t.Errorf("no file: %v, %v", k, err)
	}
	for says, file := range map[string]string{
		"line 2: want an id and a key":              write("a "+one+"\nb\n", 0o600),
		`line 1: the key of "a" is not hexadecimal`: write("a "+strings.Repeat("xy", 32), 0o600),
		`the key of "a" has 62 hexadecimal digits`:  write("a "+one[2:], 0o600),
		`key "a" is there twice`:                    write("a "+one+"\na "+two, 0o600),
		"it has no key":                             write("# none\n", 0o600),
		"others have access":                        write("a "+one, 0o644),
		"read the encryption keys":                  filepath.Join(t.TempDir(), "none"),
	} {
		_, err := Keyring(file)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), one[2:]) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
