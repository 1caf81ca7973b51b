package host

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/outbox/webhook"
)

// Keys are a shop's secrets, and the key pair with which its tokens are signed. They are made at the first start, and
// have to be kept as long as the data.
type Keys struct {
	Identity, Derivation, Encryption []byte
	Webhook                          string
	Tokens                           ed25519.PrivateKey
}

// OpenKeys reads the keys in a data folder, and makes them if they are missing. Only their owner may read the file.
func OpenKeys(data string) (*Keys, error) {
	path := filepath.Join(data, "keys.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeKeys(path)
		if err == nil || errors.Is(err, fs.ErrExist) { // another process was faster
			text, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the keys: %w", err)
	}
	var k Keys
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("open the keys: %s: %w", path, err)
	}
	if len(k.Tokens) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("open the keys: %s: the key for tokens has %d bytes, want %d", path, len(k.Tokens), ed25519.PrivateKeySize)
	}
	return &k, nil
}

func makeKeys(path string) error {
	_, tokens, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	k := Keys{Identity: random(), Derivation: random(), Encryption: random(), Webhook: webhook.NewSecret(), Tokens: tokens}
	text, err := json.MarshalIndent(k, "", "\t")
	if err != nil {
		return err
	}
	// It appears whole or not at all.
	temp, err := os.CreateTemp(filepath.Dir(path), "keys-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) //nolint:errcheck // there is no more to do
	_, err = temp.Write(append(text, '\n'))
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Link(temp.Name(), path)
}

func random() []byte {
	b := make([]byte, 32)
	rand.Read(b) //nolint:errcheck // it never fails
	return b
}

func (k *Keys) public() ed25519.PublicKey { return k.Tokens.Public().(ed25519.PublicKey) }

func (k *Keys) secrets() shop.Secrets {
	return shop.Secrets{Identity: k.Identity, Derivation: k.Derivation, Encryption: k.Encryption, Webhook: k.Webhook}
}

// Token issues a token for a user of a tenant.
func (k *Keys) Token(tenant, subject string, life time.Duration) (string, error) {
	return shop.Token(k.Tokens, shop.Principal{Tenant: tenant, Subject: subject}, life)
}
