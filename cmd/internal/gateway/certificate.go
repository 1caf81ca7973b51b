package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
)

// TLSFiles name the files, in PEM, of a certificate with its chain and of its key; and, with scope mtls, of the
// authorities that sign the certificates of clients.
type TLSFiles struct{ Cert, Key, ClientCA string }

// load returns the certificate, nil if there is none.
func (f TLSFiles) load() (*tls.Certificate, error) {
	switch {
	case f.Cert == "" && f.Key == "":
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

// readFiles are what the files of certificates hold, which are read again at each reload.
type readFiles struct {
	own, client *tls.Certificate    // shown to clients, and to the upstream; nil for none
	authorities []*x509.Certificate // of clients
}

func (c *Config) readTLS() (files readFiles, err error) {
	if files.own, err = c.TLS.load(); err != nil {
		return files, err
	}
	if files.client, err = c.UpstreamTLS.client(); err != nil || c.TLS.ClientCA == "" {
		return files, err
	}
	files.authorities, err = readAuthorities(c.TLS.ClientCA)
	return files, err
}

// UpstreamTLS says how the gateway and an upstream of https know each other. Files are in PEM.
type UpstreamTLS struct {
	CA         string // file of the authorities that sign the upstream's certificate, instead of the machine's
	Cert, Key  string // files of the certificate that the upstream is shown, with its chain, and of its key
	ServerName string // in the upstream's certificate. Defaults to the host of its address
}

// client returns the certificate that the upstream is shown, nil if there is none.
func (u UpstreamTLS) client() (*tls.Certificate, error) {
	return TLSFiles{Cert: u.Cert, Key: u.Key}.load()
}

// config returns the setting of connections to the upstream. Those that are made after the certificate was replaced
// show the new one.
func (u UpstreamTLS) config(client *certificate) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: u.ServerName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := client.Load(); c != nil {
				return c, nil
			}
			return new(tls.Certificate), nil // none
		},
	}
	if u.CA != "" {
		authorities, err := readAuthorities(u.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = poolOf(authorities)
	}
	return config, nil
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
