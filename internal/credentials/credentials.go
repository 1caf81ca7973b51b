// Package credentials compares the credentials of a repeat with those of the first request.
package credentials

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/settings"
	"github.com/semelhq/semel/internal/structuredfield"
)

// Credentials of a request prove who sends it. They are the values of headers and cookies that Policy.Credentials
// names. A keyed digest of the first request's credentials is stored with the answer, and with a stored request. It is
// never sent. The names are stored beside it, so that repeats are compared by these names, whatever the policy names by
// then.
type Credentials struct {
	Digest string // "" for none
	Names  []string
}

// cookiePrefix is put before the name of a cookie.
const cookiePrefix = "cookie:"

// Names checks the names in a setting and returns them in canonical form.
func Names(f *settings.Faults, setting string, names []string) []string {
	var out []string
	for _, name := range names {
		cookie, isCookie := strings.CutPrefix(name, cookiePrefix)
		if isCookie {
			f.If(!structuredfield.IsToken(cookie), "%s: %q is not the name of a cookie", setting, cookie)
		} else {
			f.If(!structuredfield.IsToken(name), "%s: %q is not a header name, nor cookie:NAME", setting, name)
			name = http.CanonicalHeaderKey(name)
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Of returns the credentials that a request of the operation has. Their digest is bound to the operation: a reader of
// the store can't tell that the same client asked for two operations.
func Of(d *digest.Digester, id *driver.ID, names []string, r *http.Request) Credentials {
	if len(names) == 0 {
		return Credentials{}
	}
	s := d.Start("semel credentials 1")
	s.Bytes(id[:])
	for _, name := range names {
		s.Text(name)
		if cookie, ok := strings.CutPrefix(name, cookiePrefix); ok {
			var values []string
			for _, c := range r.CookiesNamed(cookie) {
				values = append(values, c.Value)
			}
			s.Texts(values)
			continue
		}
		s.Texts(r.Header[name])
	}
	sum := s.Short()
	return Credentials{base64.RawURLEncoding.EncodeToString(sum[:]), names}
}

// Store adds the credentials to stored headers.
func (c *Credentials) Store(h http.Header) {
	if c.Digest != "" {
		h[answer.CredentialsField] = append([]string{c.Digest}, c.Names...)
	}
}

// Stored returns the credentials in stored headers; zero if there are none.
func Stored(h http.Header) (c Credentials) {
	if kept := h[answer.CredentialsField]; len(kept) > 1 {
		c.Digest, c.Names = kept[0], kept[1:]
	}
	return c
}
