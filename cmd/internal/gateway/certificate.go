package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
)

// TLSFiles name the files, in PEM, of a certificate with its chain and of its key.
type TLSFiles struct{ Cert, Key string }

// load returns the certificate, nil if there is none.
func (f TLSFiles) load() (*tls.Certificate, error) {
	switch {
	case f == TLSFiles{}:
		return nil, nil
	case f.Cert == "":
		return nil, errors.New("there is a key but no certificate")
	case f.Key == "":
		return nil, errors.New("there is a certificate but no key")
	}
	c, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	return &c, nil
}

// A certificate is what clients are shown. Connections made after it was replaced see the new one.
type certificate struct {
	atomic.Pointer[tls.Certificate]
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Load(), nil },
	}
}
