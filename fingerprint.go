package semel

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/driver"
)

// FingerprintPolicy says how a route's requests are told apart. Always compared are method, escaped path, query, media
// type, If-Match, If-None-Match, If-Unmodified-Since and the body without its content coding; nothing else
// is, unless asked for.
//
// By default the order of query names that differ in more than case, the order and the white space of JSON, the order of form names and the boundary
// of multipart bodies don't count. Whatever readers may differ on is compared byte by byte: malformed
// bodies, JSON with lone surrogates, more than 256 levels, or two names in one object that are the same or differ in case
// only, forms and queries with bytes that URL encoding escapes, forms with a name that no = follows, JSON and forms in
// another charset than UTF-8, and bodies in a content coding that is neither gzip nor deflate. So are JSON and forms
// above [Policy].SpoolRequestAbove.
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

// The domains of the digests name the version of each algorithm. The raw one never changes: it is what recognises a
// repeat after an upgrade. Whoever changes anything that the canonical one covers changes settingsDomain.
const (
	rawDomain       = "semel request raw 1"
	canonicalDomain = "semel request canonical 1"
	settingsDomain  = "semel request settings 2"
)

// Tags of a body in a digest, so that a body that was canonicalised never equals one that was not.
const (
	bodyRaw       = 1 + iota // without its content coding
	bodyOpaque               // as sent, after the name of a coding that can't be undone
	bodyJSON                 // canonical JSON
	bodyForm                 // pairs in normal order
	bodyMultipart            // digest of the parts
)

// conditionalHeaders make another request of the same body.
var conditionalHeaders = [...]string{"If-Match", "If-None-Match", "If-Unmodified-Since"}

// A requestFingerprinter is a validated FingerprintPolicy. It is safe for concurrent use.
type requestFingerprinter struct {
	exact    bool
	host     bool
	headers  []string // canonical names, sorted
	json     jsonRules
	settings [sha256.Size]byte
}

// newRequestFingerprinter reports all that is wrong with the policy.
func newRequestFingerprinter(p FingerprintPolicy) (*requestFingerprinter, error) {
	f := &requestFingerprinter{exact: p.Exact, host: p.Host, json: jsonRules{nullIsAbsent: p.NullIsAbsent}}
	var errs []error
	if p.Exact && (p.NullIsAbsent || len(p.Exclude)+len(p.ExcludeNames) > 0) {
		errs = append(errs, errors.New("every byte is compared under Exact, which can't go with Exclude, ExcludeNames or NullIsAbsent"))
	}
	for _, pointer := range p.Exclude {
		tokens, err := parseJSONPointer(pointer)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("excluded field: %w", err))
		case len(tokens) == 0:
			errs = append(errs, errors.New("excluded field: an empty JSON Pointer stands for the whole body"))
		default:
			f.json.exclude(tokens)
		}
	}
	names := make([]string, 0, len(p.ExcludeNames))
	for _, name := range p.ExcludeNames {
		if name == "" || !utf8.ValidString(name) {
			errs = append(errs, fmt.Errorf("excluded name %q is empty or not UTF-8", name))
			continue
		}
		f.json.names = append(f.json.names, appendJSONEscaped(nil, name))
		names = append(names, fold(name))
	}
	for _, h := range p.Headers {
		name := http.CanonicalHeaderKey(h)
		switch {
		case !isToken(h):
			errs = append(errs, fmt.Errorf("compared header %q is not a header name", h))
			continue
		case name == "Host":
			errs = append(errs, errors.New("compared header Host: the host is compared by the field Host"))
		case name == "Content-Length" || name == "Transfer-Encoding" || name == "Trailer":
			errs = append(errs, fmt.Errorf("compared header %s frames the message, in which honest attempts differ", name))
		}
		f.headers = append(f.headers, name)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	f.headers = sortedSet(f.headers)

	s := newDigester(nil).start(settingsDomain)
	s.flag(f.exact)
	s.flag(f.host)
	s.flag(f.json.nullIsAbsent)
	s.strings(sortedSet(slices.Clone(p.Exclude)))
	s.strings(sortedSet(names))
	s.strings(f.headers)
	f.settings = s.sum()
	return f, nil
}

func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// targetPath returns the target of a request without its query. One that is no path, as "x:payments/1", has none.
func targetPath(r *http.Request) string {
	if r.URL.Opaque != "" {
		return r.URL.Scheme + ":" + r.URL.Opaque
	}
	return r.URL.EscapedPath()
}

// of returns the fingerprint of a request whose body was read as b. It fails only if a body in a temporary file can't
// be read, or if what doesn't count in the body can't be told, with errAmbiguous.
func (f *requestFingerprinter) of(d *digester, r *http.Request, b *requestBody) (driver.Fingerprint, error) {
	c := takeCanonicalizer()
	defer c.release()
	path, contentType := targetPath(r), r.Header["Content-Type"]
	var conditions [len(conditionalHeaders)][]string
	for i, name := range conditionalHeaders {
		conditions[i] = r.Header[name]
	}

	raw := d.start(rawDomain)
	raw.string(r.Method)
	raw.string(path)
	raw.string(r.URL.RawQuery)
	raw.strings(contentType)
	f.writeHeaders(raw, conditions[:], r.Header)
	raw.flag(f.host)
	if f.host {
		raw.string(r.Host)
	}

	canonical := d.start(canonicalDomain)
	canonical.string(r.Method)
	canonical.string(path)
	if ok := c.query(r.URL.RawQuery); ok {
		canonical.flag(true)
		c.writePairs(canonical)
	} else {
		canonical.flag(false)
		canonical.string(r.URL.RawQuery)
	}
	f.writeHeaders(canonical, conditions[:], r.Header)
	canonical.flag(f.host)
	if f.host {
		canonical.string(strings.ToLower(r.Host))
	}

	media := parseMediaType(contentType)
	form, parts, err := f.canonicalize(d, c, &media, b)
	if err != nil {
		return driver.Fingerprint{}, err
	}
	media.write(canonical, form == bodyMultipart)

	openBody(raw, b)
	switch form {
	case bodyJSON:
		canonical.uint(bodyJSON)
		canonical.bytes(c.out)
	case bodyForm:
		canonical.uint(bodyForm)
		c.writePairs(canonical)
	case bodyMultipart:
		canonical.uint(bodyMultipart)
		canonical.string(parts)
	default:
		openBody(canonical, b)
	}
	switch {
	case !b.streamed:
		raw.Write(b.plain)
		if form == bodyRaw {
			canonical.Write(b.plain)
		}
	case form == bodyRaw:
		err = b.stream(io.MultiWriter(raw, canonical))
	default:
		err = b.stream(raw)
	}
	if err != nil {
		return driver.Fingerprint{}, err
	}

	fp := driver.Fingerprint{Settings: f.settingsFor(b)}
	sum := raw.sum()
	copy(fp.Raw[:], sum[:])
	sum = canonical.sum()
	copy(fp.Canonical[:], sum[:])
	return fp, nil
}

// writeHeaders writes the header fields that count besides Content-Type; conditions are the lines of conditionalHeaders.
func (f *requestFingerprinter) writeHeaders(s *digest, conditions [][]string, h http.Header) {
	for _, lines := range conditions {
		s.strings(lines)
	}
	s.uint(uint64(len(f.headers)))
	for _, name := range f.headers {
		s.string(name)
		s.strings(h[name])
	}
}

// openBody begins a body that follows as it is.
func openBody(s *digest, b *requestBody) {
	if b.opaque != "" {
		s.uint(bodyOpaque)
		s.string(b.opaque)
	} else {
		s.uint(bodyRaw)
	}
	s.uint(uint64(b.plainSize))
}

// canonicalize brings the body into canonical form and says which it has: that of JSON is left in c.out, that of a form
// in c's pairs, and of multipart a digest is returned. With bodyRaw there is none.
func (f *requestFingerprinter) canonicalize(d *digester, c *canonicalizer, m *mediaType, b *requestBody) (form uint64, parts string, err error) {
	switch {
	case f.exact || b.opaque != "":
	case m.multipart():
		sum, ok, err := multipartDigest(d, b.decoded(), m.boundary)
		if err != nil {
			return 0, "", fmt.Errorf("%w: read: %w", errSpooled, err)
		}
		if ok {
			return bodyMultipart, string(sum[:]), nil
		}
	case b.streamed:
	case m.json():
		switch ok := c.json(b.plain, &f.json); {
		case ok:
			return bodyJSON, "", nil
		case c.ambiguous && f.json.exclusive():
			return 0, "", fmt.Errorf("leave excluded fields out of the request: %w", errAmbiguous)
		}
	case m.form() && c.form(b.plain):
		return bodyForm, "", nil
	}
	return bodyRaw, "", nil
}

// settingsFor returns the digest of the settings under which b was canonicalised. The size above which a body is
// spooled is one of them: it decides which bodies keep their raw form.
func (f *requestFingerprinter) settingsFor(b *requestBody) (settings [8]byte) {
	if b.spoolAbove == 0 {
		copy(settings[:], f.settings[:])
		return settings
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(f.settings[:], uint64(b.spoolAbove)))
	copy(settings[:], sum[:])
	return settings
}
