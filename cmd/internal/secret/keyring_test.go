package secret

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/keyring"
)

func TestAttack09_AKeyringMayBeLong(t *testing.T) {
	t.Parallel()
	name, text := filepath.Join(t.TempDir(), "keys"), ""
	for i := range 100 {
		text += fmt.Sprintf("key-%d %064x\n", i, i+1)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := Keyring(name)
	if err != nil {
		t.Fatal(err)
	}
	last, err := keyring.New(keyring.Key{ID: "key-99", Key: append(make([]byte, 31), 100)})
	if err != nil {
		t.Fatal(err)
	}
	answer := &driver.Response{Status: 201, Body: []byte("x")}
	got, err := k.Open(driver.ID{}, &driver.Record{Response: last.Seal(driver.ID{}, driver.Token{}, answer)})
	if err != nil || string(got.Body) != "x" {
		t.Errorf("of the last key: %+v, %v", got, err)
	}
}

// A group may read: so a file is mounted in Kubernetes.
func TestAttack09_WhatOthersMayReadIsRefused(t *testing.T) {
	t.Parallel()
	text := "a " + strings.Repeat("01", 32)
	for _, kind := range []struct {
		name string
		read func(file string) error
	}{
		{"the encryption keys", func(file string) error { _, err := Keyring(file); return err }},
		{"the derivation secret", func(file string) error { _, err := Derivation(file); return err }},
	} {
		for mode, refused := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o440: false, 0o640: false, 0o444: true, 0o644: true, 0o660: true, 0o604: true} {
			file := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
			err := kind.read(file)
			if refused != (err != nil) || refused && !strings.Contains(err.Error(), "read "+kind.name+": others have access") {
				t.Errorf("%s with mode %04o: %v", kind.name, mode, err)
			}
		}
	}
	if secret, err := Derivation(""); secret != nil || err != nil {
		t.Errorf("no file: %q, %v", secret, err)
	}
}

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
	answer := &driver.Response{Status: 201, Body: []byte("x")}
	if sealed := k.Seal(driver.ID{}, driver.Token{}, answer); !strings.HasSuffix(sealed.Codec, ":2027") {
		t.Errorf("encrypted with %s, want the first key", sealed.Codec)
	}
	if got, err := k.Open(driver.ID{}, &driver.Record{Response: old.Seal(driver.ID{}, driver.Token{}, answer)}); err != nil || string(got.Body) != "x" {
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
