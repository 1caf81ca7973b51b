package driver

// Fingerprint identifies what a request asked for, by keyed digests of 128 bits (RFC 2104, section 5, allows that
// truncation).
type Fingerprint struct {
	Raw       [16]byte // digest of the request as it was sent, with its body decoded
	Canonical [16]byte // digest of the request without insignificant differences
	Settings  [8]byte  // digest of the algorithm's version and of the route's settings under which Canonical was made
}

// Equal reports whether f and g are of the same request. They are if the raw digests are equal, or if the settings and
// the canonical digests are both equal. Canonical digests under different settings can't be compared.
func (f Fingerprint) Equal(g Fingerprint) bool {
	return f.Raw == g.Raw || f.Settings == g.Settings && f.Canonical == g.Canonical
}
