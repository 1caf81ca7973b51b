package secret

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/semelhq/semel/keyring"
)

// Keyring reads the keys that encrypt stored answers from a file: each line has a key's id and, behind a space,
// the key itself in 64 hexadecimal digits. The first one encrypts, all decrypt. Empty lines and lines that begin with #
// don't count. "" is no keyring.
func Keyring(file string) (*keyring.Ring, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readText(file, "the encryption keys")
	if err != nil {
		return nil, err
	}
	var keys []keyring.Key
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		var key []byte
		err := fmt.Errorf("want an id and a key")
		if len(words) == 2 {
			if key, err = hex.DecodeString(words[1]); err != nil {
				err = fmt.Errorf("the key of %q is not hexadecimal", words[0]) // the cause would show a part of it
			} else if len(key) != 32 {
				err = fmt.Errorf("the key of %q has %d hexadecimal digits, want 64, as \"openssl rand -hex 32\" makes them", words[0], len(words[1]))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the encryption keys from %s: line %d: %w", file, i+1, err)
		}
		keys = append(keys, keyring.Key{ID: words[0], Key: key})
	}
	k, err := keyring.New(keys...)
	if err != nil {
		return nil, fmt.Errorf("the encryption keys from %s: %w", file, err)
	}
	return k, nil
}
