package semel

// A Codec compresses stored bodies. Its methods are called concurrently.
type Codec interface {
	// Name is stored with each body; it must stay the same for the same format.
	Name() string
	// Encode returns body compressed. It may return it unchanged in length or longer; then it is stored as it is.
	Encode(body []byte) ([]byte, error)
	// Decode returns what Encode was given, or an error if that would be larger than limit bytes.
	Decode(stored []byte, limit int64) ([]byte, error)
}
