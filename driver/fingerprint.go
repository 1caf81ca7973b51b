package driver

// Fingerprint says what a request was, as keyed digests of 128 bits (RFC 2104, section 5, allows that truncation).
type Fingerprint struct {
	Raw       [16]byte // of the request as it was sent, its body decoded
	Canonical [16]byte // of the request with insignificant differences removed
	Settings  [8]byte  // of the algorithm's version and the route's settings under which Canonical was made
}

// Equal reports whether f and g are of the same request: the raw digests are equal, or the settings and the canonical
// digests are. Digests made under different settings say nothing about each other.
func (f Fingerprint) Equal(g Fingerprint) bool {
	return f.Raw == g.Raw || f.Settings == g.Settings && f.Canonical == g.Canonical
}
