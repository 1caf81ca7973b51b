package semel

// FingerprintPolicy says how a route's requests are told apart. Always compared are method, escaped path, query, media
// type, If-Match, If-None-Match, If-Unmodified-Since and the body without its content coding; nothing else is, unless
// asked for.
//
// By default the order of query names that differ in more than case, the order and the white space of JSON, the order
// of form names and the boundary of multipart bodies don't count. Whatever readers may differ on is compared byte by
// byte: malformed bodies, JSON with lone surrogates, more than 256 levels, or two names in one object that are the same
// or differ in case only, forms and queries with bytes that URL encoding escapes, forms with a name that no = follows,
// JSON and forms in another charset than UTF-8, and bodies in a content coding that is neither gzip nor deflate. So are
// JSON and forms above [Policy].SpoolRequestAbove.
//
// A change of these settings makes older answers available to byte-equal repeats only; others are told
// replay-unavailable.
type FingerprintPolicy struct {
	// Exact compares bodies byte by byte, after content decoding.
	Exact bool
	// Exclude lists JSON Pointers (RFC 6901) to what doesn't count in a JSON body, such as "/meta/sent_at". The token *
	// stands for every element of an array: "/items/*/sent_at". A body that isn't canonicalised is compared whole; one
	// with two names in one object that are the same, or differ in case only, is refused with 400: its readers differ on
	// which of the two it holds, so what doesn't count can't be told.
	Exclude []string
	// ExcludeNames lists names of members that don't count in a JSON body, at any depth and in either case. What Exclude
	// refuses is refused here too. Warning: a
	// name that means nothing at one place can be what the request is about at another; two requests that differ only
	// there are then one, and the second gets the first one's answer. Prefer Exclude.
	ExcludeNames []string
	// NullIsAbsent takes a JSON member that is null for one that is absent.
	NullIsAbsent bool
	// Headers lists request headers that count as well.
	Headers []string
	// Host makes the host count, for routes that serve several.
	Host bool
}
