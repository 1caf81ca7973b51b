package semel

import (
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/structuredfield"
	"github.com/semelhq/semel/refusal"
)

// The credentials of a request prove who sends it: they are the values of headers and cookies that Policy.Credentials
// names. A keyed digest of the first request's credentials is stored with the answer, and with a stored request. It is
// never sent. The names are stored beside it, so that repeats are compared by these names, whatever the policy names by
// then.
type credentials struct {
	digest string
	names  []string
}

// cookieCredential is put before the name of a cookie.
const cookieCredential = "cookie:"

var errOtherCredentials = errors.New("the first request had other credentials, or which it had is not known")

// credentialNames checks the names of Policy.Credentials and returns them in canonical form.
func credentialNames(names []string, fail func(string, ...any)) []string {
	var out []string
	for _, name := range names {
		cookie, isCookie := strings.CutPrefix(name, cookieCredential)
		switch {
		case isCookie && !structuredfield.IsToken(cookie):
			fail("policy: Credentials: %q is not the name of a cookie", cookie)
		case !isCookie && !structuredfield.IsToken(name):
			fail("policy: Credentials: %q is not a header name, nor cookie:NAME", name)
		case !isCookie:
			name = http.CanonicalHeaderKey(name)
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// credentialsOf returns the credentials that a request of the operation has. Their digest is bound to the operation: a
// reader of the store can't tell that the same client asked for two operations.
func credentialsOf(d *digest.Digester, id *driver.ID, names []string, r *http.Request) credentials {
	if len(names) == 0 {
		return credentials{}
	}
	s := d.Start("semel credentials 1")
	s.Bytes(id[:])
	for _, name := range names {
		s.Text(name)
		if cookie, ok := strings.CutPrefix(name, cookieCredential); ok {
			var values []string
			for _, c := range r.CookiesNamed(cookie) {
				values = append(values, c.Value)
			}
			s.Texts(values)
			continue
		}
		s.Texts(r.Header[name])
	}
	sum := s.Sum()
	return credentials{base64.RawURLEncoding.EncodeToString(sum[:16]), names}
}

// store adds the credentials to stored headers.
func (c *credentials) store(h http.Header) {
	if c.digest != "" {
		h[answer.CredentialsField] = append([]string{c.digest}, c.names...)
	}
}

// storedCredentials returns the credentials in stored headers; zero if there are none.
func storedCredentials(h http.Header) (c credentials) {
	if kept := h[answer.CredentialsField]; len(kept) > 1 {
		c.digest, c.names = kept[0], kept[1:]
	}
	return c
}

// mayHave says why a stored answer must not be given to this request. A request with the credentials of the first
// request may have it. About any other request Policy.AuthorizeReplay decides. For a question about an operation,
// mayHave is as strict as the strictest route, because it can't be told which route the operation is of.
func (x *exchange) mayHave(answer *driver.Response) error {
	p := x.g.policy
	compares := x.compares()
	if compares {
		kept := storedCredentials(answer.Header)
		given := credentialsOf(x.g.identity, &x.ask.ID, kept.names, x.r)
		if kept.digest != "" && hmac.Equal([]byte(kept.digest), []byte(given.digest)) {
			return nil
		}
	}
	switch {
	case p.AuthorizeReplay != nil:
		return p.AuthorizeReplay(x.shown())
	case compares:
		return errOtherCredentials
	case x.question && x.g.authorizes.Load():
		return errors.New("routes have Policy.AuthorizeReplay, and that of Guard.Operations has none")
	}
	return nil
}

// withheld is the refusal that follows from an error of mayHave. If AuthorizeReplay could not be asked, it may allow
// the replay later, and the operation has happened. So the client must come back with this key, and not go on with
// another.
func (x *exchange) withheld(err error) *Problem {
	if errors.Is(err, refusal.OutcomePending) {
		return x.g.problem(refusal.OutcomePending, "whether the stored answer may be shown can't be told now").because(err)
	}
	return x.g.problem(refusal.ReplayForbidden, "").because(err)
}

// compares reports whether a repeat must have the credentials of the first request.
func (x *exchange) compares() bool {
	return len(x.g.policy.Credentials) > 0 || x.question && x.g.compares.Load()
}
