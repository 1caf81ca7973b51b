package certsubject

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

// Two clients with two common names each are never one principal.
func TestASubjectIsWrittenWhole(t *testing.T) {
	t.Parallel()
	of := func(names ...string) *x509.Certificate {
		var sequence pkix.RDNSequence
		for _, name := range names {
			sequence = append(sequence, pkix.RelativeDistinguishedNameSET{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: name}})
		}
		raw, err := asn1.Marshal(sequence)
		if err != nil {
			t.Fatal(err)
		}
		return &x509.Certificate{RawSubject: raw}
	}
	for _, c := range []struct {
		cert *x509.Certificate
		want string // "" for none
	}{
		{of("alice"), "CN=alice"},
		{of("bob", "alice"), "CN=alice,CN=bob"},
		{of("alice", "bob"), "CN=bob,CN=alice"},
		{of("a,b"), `CN=a\,b`},
		{of(), ""},
		{&x509.Certificate{RawSubject: []byte("no DER")}, ""},
	} {
		if got, ok := Of(c.cert); got != c.want || ok != (c.want != "") {
			t.Errorf("got %q, %t, want %q", got, ok, c.want)
		}
	}
}
