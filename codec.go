package semel

// A Codec compresses stored bodies. Its methods are called concurrently.
type Codec interface {
	// Name is stored with each body; it must stay the same for the same format.
	Name() string
	// Encode returns body compressed. The result may be as long as body or longer; then body is stored as it is.
	Encode(body []byte) ([]byte, error)
	// Decode returns the body that Encode was given, or an error if that body is larger than limit bytes.
	Decode(stored []byte, limit int64) ([]byte, error)
}
