// Package fingerprint identifies what a request asks for: whether it is the same as another request, and what a field
// of it holds.
package fingerprint

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
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/internal/structuredfield"
)

// A Policy says how requests are told apart. Its fields are those of semel.FingerprintPolicy, which explains them.
type Policy struct {
	Exact        bool
	Exclude      []string
	ExcludeNames []string
	NullIsAbsent bool
	Headers      []string
	Host         bool
}

// The domains of the digests name the version of each algorithm. The raw domain never changes: it recognises a repeat
// after an upgrade. If you change anything that the canonical digest covers, change settingsDomain.
const (
	rawDomain       = "semel request raw 1"
	canonicalDomain = "semel request canonical 1"
	settingsDomain  = "semel request settings 2"
)

// Tags of a body in a digest. With them a canonicalised body never equals one that was not canonicalised.
const (
	bodyRaw       = 1 + iota // the body without its content coding
	bodyOpaque               // the body as sent, after the name of a coding that can't be undone
	bodyJSON                 // canonical JSON
	bodyForm                 // pairs in normal order
	bodyMultipart            // digest of the parts
)

// conditionalHeaders make the same body another request.
var conditionalHeaders = [...]string{"If-Match", "If-None-Match", "If-Unmodified-Since"}

// A Fingerprinter is a validated Policy. It is safe for concurrent use.
type Fingerprinter struct {
	exact    bool
	host     bool
	headers  []string // canonical names, sorted
	json     jsonRules
	settings [sha256.Size]byte
}

// New reports everything that is wrong with the policy.
func New(p Policy) (*Fingerprinter, error) {
	f := &Fingerprinter{exact: p.Exact, host: p.Host, json: jsonRules{nullIsAbsent: p.NullIsAbsent}}
	var errs []error
	if p.Exact && (p.NullIsAbsent || len(p.Exclude)+len(p.ExcludeNames) > 0) {
		errs = append(errs, errors.New("every byte is compared under Exact, which can't go with Exclude, ExcludeNames or NullIsAbsent"))
	}
	for _, pointer := range p.Exclude {
		tokens, err := ParseJSONPointer(pointer)
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
		case !structuredfield.IsToken(h):
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

	s := digest.New(nil).Start(settingsDomain)
	s.Flag(f.exact)
	s.Flag(f.host)
	s.Flag(f.json.nullIsAbsent)
	s.Texts(sortedSet(slices.Clone(p.Exclude)))
	s.Texts(sortedSet(names))
	s.Texts(f.headers)
	f.settings = s.Sum()
	return f, nil
}

func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// TargetPath returns the target of a request without its query. A target that is not a path, such as "x:payments/1",
// has no query.
func TargetPath(r *http.Request) string {
	if r.URL.Opaque != "" {
		return r.URL.Scheme + ":" + r.URL.Opaque
	}
	return r.URL.EscapedPath()
}

// Of returns the fingerprint of a request for an operation. Its body was read as b. recent may know the request; nil
// knows none. Of fails only in two cases: a body in a temporary file can't be read; or the parts of the body that don't
// count can't be found, which is ErrAmbiguous.
func (f *Fingerprinter) Of(d *digest.Digester, recent *Recent, id driver.ID, r *http.Request, b *requestbody.Body) (driver.Fingerprint, error) {
	fp := driver.Fingerprint{Settings: f.settingsFor(b)}
	t := target{path: TargetPath(r), contentType: r.Header["Content-Type"]}
	for i, name := range conditionalHeaders {
		t.conditions[i] = r.Header[name]
	}
	raw := f.raw(d, r, &t, b)
	if !b.Streamed { // a body in a file is read only once, for both digests
		raw.Write(b.Plain)
		fp.Raw = raw.Short()
		if recent.complete(id, &fp) {
			return fp, nil
		}
	}
	canonical, unchanged, err := f.canonical(d, r, &t, b)
	switch {
	case err != nil:
	case b.Streamed && unchanged:
		err = b.Stream(io.MultiWriter(raw, canonical))
	case b.Streamed:
		err = b.Stream(raw)
	case unchanged:
		canonical.Write(b.Plain)
	}
	if err != nil {
		return driver.Fingerprint{}, err
	}
	if fp.Canonical = canonical.Short(); b.Streamed {
		fp.Raw = raw.Short()
	} else {
		recent.add(id, &fp)
	}
	return fp, nil
}

// A target is what both digests of a request cover besides its body.
type target struct {
	path        string
	contentType []string
	conditions  [len(conditionalHeaders)][]string // the lines of conditionalHeaders
}

// raw begins the raw digest. The bytes of the body are left to be written.
func (f *Fingerprinter) raw(d *digest.Digester, r *http.Request, t *target, b *requestbody.Body) *digest.Digest {
	raw := d.Start(rawDomain)
	raw.Text(r.Method)
	raw.Text(t.path)
	raw.Text(r.URL.RawQuery)
	raw.Texts(t.contentType)
	f.writeHeaders(raw, t, r.Header)
	raw.Flag(f.host)
	if f.host {
		raw.Text(r.Host)
	}
	openBody(raw, b)
	return raw
}

// canonical begins the canonical digest. If the body has no canonical form, unchanged is true and its bytes are left to
// be written.
func (f *Fingerprinter) canonical(d *digest.Digester, r *http.Request, t *target, b *requestbody.Body) (canonical *digest.Digest, unchanged bool, err error) {
	c := takeCanonicalizer()
	defer c.release()
	canonical = d.Start(canonicalDomain)
	canonical.Text(r.Method)
	canonical.Text(t.path)
	if ok := c.query(r.URL.RawQuery); ok {
		canonical.Flag(true)
		c.writePairs(canonical)
	} else {
		canonical.Flag(false)
		canonical.Text(r.URL.RawQuery)
	}
	f.writeHeaders(canonical, t, r.Header)
	canonical.Flag(f.host)
	if f.host {
		canonical.Text(strings.ToLower(r.Host))
	}

	media := ParseMediaType(t.contentType)
	form, parts, err := f.canonicalize(d, c, &media, b)
	if err != nil {
		return nil, false, err
	}
	media.write(canonical, form == bodyMultipart)
	switch form {
	case bodyJSON:
		canonical.Uint(bodyJSON)
		canonical.Bytes(c.out)
	case bodyForm:
		canonical.Uint(bodyForm)
		c.writePairs(canonical)
	case bodyMultipart:
		canonical.Uint(bodyMultipart)
		canonical.Text(parts)
	default:
		openBody(canonical, b)
	}
	return canonical, form == bodyRaw, nil
}

// writeHeaders writes the header fields that count besides Content-Type.
func (f *Fingerprinter) writeHeaders(s *digest.Digest, t *target, h http.Header) {
	for _, lines := range t.conditions {
		s.Texts(lines)
	}
	s.Uint(uint64(len(f.headers)))
	for _, name := range f.headers {
		s.Text(name)
		s.Texts(h[name])
	}
}

// openBody begins a body that follows unchanged.
func openBody(s *digest.Digest, b *requestbody.Body) {
	if b.Opaque != "" {
		s.Uint(bodyOpaque)
		s.Text(b.Opaque)
	} else {
		s.Uint(bodyRaw)
	}
	s.Uint(uint64(b.PlainSize))
}

// canonicalize brings the body into canonical form and says which form it has. The form of JSON is left in c.out, that
// of a form in c's pairs; of a multipart body a digest is returned. With bodyRaw there is no canonical form.
func (f *Fingerprinter) canonicalize(d *digest.Digester, c *canonicalizer, m *mediaType, b *requestbody.Body) (form uint64, parts string, err error) {
	switch {
	case f.exact || b.Opaque != "":
	case m.multipart():
		sum, ok, err := multipartDigest(d, b.Decoded(), m.boundary)
		if err != nil {
			return 0, "", fmt.Errorf("%w: read: %w", requestbody.ErrSpooled, err)
		}
		if ok {
			return bodyMultipart, string(sum[:]), nil
		}
	case b.Streamed:
	case m.JSON():
		switch ok := c.json(b.Plain, &f.json); {
		case ok:
			return bodyJSON, "", nil
		case c.ambiguous && f.json.exclusive():
			return 0, "", fmt.Errorf("leave excluded fields out of the request: %w", ErrAmbiguous)
		}
	case m.Form() && c.form(b.Plain):
		return bodyForm, "", nil
	}
	return bodyRaw, "", nil
}

// settingsFor returns the digest of the settings under which b was canonicalised. The size above which a body is
// spooled is one of these settings, because it decides which bodies keep their raw form.
func (f *Fingerprinter) settingsFor(b *requestbody.Body) (settings [8]byte) {
	if b.SpoolAbove == 0 {
		copy(settings[:], f.settings[:])
		return settings
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(f.settings[:], uint64(b.SpoolAbove)))
	copy(settings[:], sum[:])
	return settings
}
