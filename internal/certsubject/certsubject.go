// Package certsubject writes the subject of a certificate whole.
package certsubject

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
)

// Of returns the subject as RFC 4514 writes it, and false if there is none. The text that [pkix.Name] makes leaves out
// the first of two common names, and the order: two subjects could have one text.
func Of(c *x509.Certificate) (string, bool) {
	var name pkix.RDNSequence
	if rest, err := asn1.Unmarshal(c.RawSubject, &name); err != nil || len(rest) > 0 || len(name) == 0 {
		return "", false
	}
	return name.String(), true
}
