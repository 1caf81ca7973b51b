package semel

// FingerprintPolicy says how a route's requests are told apart. These are always compared: method, escaped path, query,
// media type, If-Match, If-None-Match, If-Unmodified-Since and the body without its content coding. Nothing else is
// compared unless the policy asks for it.
//
// By default these do not count: the order of query names that differ in more than case, the order and the white space
// of JSON, the order of form names, and the boundary of multipart bodies. Where readers may understand a request
// differently, it is compared byte by byte. These are malformed bodies; bodies in a content coding that is neither gzip
// nor deflate; JSON and forms in another charset than UTF-8; JSON with lone surrogates, with more than 256 levels, or
// with two names in one object that are the same or differ in case only; forms and queries with bytes that URL encoding
// escapes; and forms with a name that no = follows. JSON and forms above [Policy].SpoolRequestAbove are compared byte
// by byte too.
//
// After a change of these settings, older answers are available only to repeats that are equal byte by byte; others are
// told replay-unavailable.
type FingerprintPolicy struct {
	// Exact compares bodies byte by byte, after content decoding.
	Exact bool
	// Exclude lists JSON Pointers (RFC 6901) to the parts of a JSON body that don't count, such as "/meta/sent_at". The
	// token * stands for every element of an array: "/items/*/sent_at". A body that isn't canonicalised is compared whole.
	// A body with two names in one object that are the same, or differ in case only, is refused with 400: its readers
	// differ on which of the two it holds, so the excluded parts can't be found.
	Exclude []string
	// ExcludeNames lists names of members that don't count in a JSON body, at any depth, in upper or lower case. It
	// refuses the same bodies as Exclude. Warning: a name that means nothing in one place can be the subject of the
	// request in another. Two requests that differ only there are then the same, and the second gets the first one's
	// answer. Prefer Exclude.
	ExcludeNames []string
	// NullIsAbsent treats a JSON member that is null like one that is absent.
	NullIsAbsent bool
	// Headers lists request headers that count as well.
	Headers []string
	// Host makes the host count, for routes that serve several.
	Host bool
}
