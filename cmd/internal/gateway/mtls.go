package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/certsubject"
)

// MTLS says which name of a client's certificate tells who asks, with scope mtls. A certificate counts if an authority
// of [TLSFiles].ClientCA has signed it for a client.
type MTLS struct {
	// Principal is the name: subject (as RFC 4514 writes it), or the only one of its kind among the alternative names (RFC
	// 5280, section 4.2.1.6): san-uri, san-dns or san-email.
	Principal string
}

// certificateNames are the names of a certificate that can tell who asks.
var certificateNames = map[string]func(*x509.Certificate) []string{
	"subject": subject,
	"san-uri": func(c *x509.Certificate) (names []string) {
		for _, u := range c.URIs {
			names = append(names, u.String())
		}
		return names
	},
	"san-dns": func(c *x509.Certificate) (names []string) {
		for _, name := range c.DNSNames {
			names = append(names, strings.ToLower(name))
		}
		return names
	},
	"san-email": func(c *x509.Certificate) []string { return c.EmailAddresses },
}

func subject(c *x509.Certificate) []string {
	if name, ok := certsubject.Of(c); ok {
		return []string{name}
	}
	return nil
}

// check says what is wrong with the settings of scope mtls, or that they are there without it.
func (m *MTLS) check(scope Scope, files TLSFiles, fail func(string, string, ...any)) {
	if !scope.mtls {
		if m.Principal != "" {
			fail("mtls", "mtls is only for scope: mtls")
		}
		if files.ClientCA != "" {
			fail("tls.client_ca", "tls.client_ca is only for scope: mtls")
		}
		return
	}
	kinds := strings.Join(slices.Sorted(maps.Keys(certificateNames)), ", ")
	if m.Principal == "" {
		fail("mtls", "mtls.principal is missing: the name of a certificate that tells who asks, one of %s", kinds)
	} else if certificateNames[m.Principal] == nil {
		fail("mtls.principal", "mtls.principal: %q is none of %s", m.Principal, kinds)
	}
	if files.Cert == "" && files.Key == "" {
		fail("tls", "tls.cert and tls.key are missing: with scope: mtls clients speak TLS")
	}
	if files.ClientCA == "" {
		fail("tls", "tls.client_ca is missing: a file of the authorities that sign clients' certificates")
	} else if _, err := readAuthorities(files.ClientCA); err != nil {
		fail("tls.client_ca", "tls.client_ca: %v", err)
	}
}

// clientCertificates tell the principal of a request by the certificate that its client has shown.
type clientCertificates struct {
	of          func(*x509.Certificate) []string
	authorities atomic.Pointer[[]*x509.Certificate] // of now; a reload replaces them
}

// principal returns who asks. The handshake has verified the certificate. That was when the connection began: the
// authority must still count, and nothing of the chain may have expired since.
func (c *clientCertificates) principal(r *http.Request) (string, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", errors.New("scope: the client has shown no certificate")
	}
	if !slices.ContainsFunc(r.TLS.VerifiedChains, c.counts) {
		return "", errors.New("scope: the client's certificate has expired, or its authority no longer counts")
	}
	names := c.of(r.TLS.VerifiedChains[0][0])
	if len(names) != 1 {
		return "", fmt.Errorf("scope: the client's certificate has %d names such as tell who asks, want one", len(names))
	}
	return names[0], nil
}

func (c *clientCertificates) counts(chain []*x509.Certificate) bool {
	now := time.Now()
	expired := slices.ContainsFunc(chain, func(cert *x509.Certificate) bool { return now.After(cert.NotAfter) })
	return !expired && slices.ContainsFunc(*c.authorities.Load(), chain[len(chain)-1].Equal)
}

// asked is the setting of connections whose clients are asked for a certificate. Who shows none is nobody; one that
// does not verify ends the handshake.
func (c *clientCertificates) asked(own *tls.Config) *tls.Config {
	own.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			MinVersion: own.MinVersion, GetCertificate: own.GetCertificate, NextProtos: []string{"h2", "http/1.1"},
			ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: poolOf(*c.authorities.Load()),
		}, nil
	}
	return own
}

// readAuthorities returns the certificates of a file, in PEM.
func readAuthorities(name string) (certs []*x509.Certificate, err error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read authorities: %w", err)
	}
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read authorities: %s: certificate %d: %w", name, len(certs)+1, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("read authorities: %s has no certificate", name)
	}
	return certs, nil
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	return pool
}
