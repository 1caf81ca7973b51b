package gateway

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/cors"
)

// CORS says which pages of other origins may read answers, the gateway's own included. Without origins the
// gateway adds nothing: what the service allows passes, but the gateway's own answers can't be read by such a page.
//
// With origins the gateway answers preflight requests itself, and what the service says about CORS is dropped: a
// browser takes no answer that allows twice.
type CORS struct {
	// Origins are those whose pages may read answers: "https://shop.example", "https://*.shop.example", or "*" for all.
	Origins []string
	// Credentials lets pages send cookies, and TLS certificates. Not with "*".
	Credentials bool
	// Methods that pages may use. Defaults to GET, HEAD, POST, PUT, PATCH and DELETE.
	Methods []string
	// RequestHeaders are those that pages may send besides Content-Type and what the gateway itself reads.
	RequestHeaders []string
	// ResponseHeaders are those that pages may read besides what the gateway itself sends.
	ResponseHeaders []string
	// MaxAge is how long browsers may remember the answer to a preflight request, in whole seconds; at most 24 h. Defaults
	// to 10 min.
	MaxAge time.Duration
}

const (
	defaultCORSAge = 10 * time.Minute
	longestCORSAge = 24 * time.Hour
)

func (c *CORS) allows() bool { return len(c.Origins) > 0 }

// check reports what is wrong with the settings.
func (c *CORS) check(fail func(at, format string, a ...any)) {
	if !c.allows() {
		if c.Origins != nil || c.Credentials || c.Methods != nil || c.RequestHeaders != nil || c.ResponseHeaders != nil || c.MaxAge != 0 {
			fail("cors.origins", "cors: origins is missing: which pages may read answers")
		}
		return
	}
	for _, origin := range c.Origins {
		if !isOrigin(origin) {
			fail("cors.origins", "cors: %q is not an origin: want https://shop.example, https://*.shop.example, or * for all", origin)
		}
		if origin == "*" && c.Credentials {
			fail("cors.credentials", "cors: credentials can't be for all origins: browsers refuse that")
		}
	}
	for _, list := range []struct {
		name  string
		names []string
	}{{"request_headers", c.RequestHeaders}, {"response_headers", c.ResponseHeaders}, {"methods", c.Methods}} {
		for _, name := range list.names {
			if !isToken(name) {
				fail("cors."+list.name, "cors: %s: %q is not a name", list.name, name)
			}
		}
	}
	if c.MaxAge < 0 || c.MaxAge > longestCORSAge || c.MaxAge%time.Second != 0 {
		fail("cors.max_age", "cors: max_age is %v, want whole seconds, at most %v", c.MaxAge, longestCORSAge)
	}
}

// isOrigin reports whether s is an origin as browsers write it, with "*" for one or more of its first labels, or "*"
// alone.
func isOrigin(s string) bool {
	if s == "*" {
		return true
	}
	u, err := url.Parse(strings.Replace(s, "://*.", "://", 1))
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && !strings.Contains(u.Host, "*") &&
		s == u.Scheme+"://"+strings.TrimPrefix(s, u.Scheme+"://") && u.String() == u.Scheme+"://"+u.Host && s == strings.ToLower(s)
}

// isToken reports whether s is a token, as names of headers and methods are (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// newCORS returns what adds to answers that pages may read them; nil if nothing is to be added.
func newCORS(c *CORS, t *table) *cors.Cors {
	if !c.allows() {
		return nil
	}
	request, response := map[string]bool{"Content-Type": true}, map[string]bool{}
	add := func(to map[string]bool, names []string) {
		for _, name := range names {
			to[http.CanonicalHeaderKey(name)] = true
		}
	}
	add(request, c.RequestHeaders)
	add(response, c.ResponseHeaders)
	for _, r := range append(slices.Collect(maps.Values(t.routes)), t.others) {
		allow, expose := r.guard.CORSHeaders()
		add(request, allow)
		add(response, expose)
	}
	methods := c.Methods
	if len(methods) == 0 {
		methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	}
	age := c.MaxAge
	if age == 0 {
		age = defaultCORSAge
	}
	return cors.New(cors.Options{
		AllowedOrigins: c.Origins, AllowCredentials: c.Credentials, AllowedMethods: methods,
		AllowedHeaders: slices.Sorted(maps.Keys(request)), ExposedHeaders: slices.Sorted(maps.Keys(response)),
		MaxAge: int(age / time.Second),
	})
}

// readable adds to the answer what lets a page of another origin read it, and answers preflight requests; then it
// reports true.
func (t *table) readable(w http.ResponseWriter, r *http.Request) (answered bool) {
	if t.cors == nil {
		return false
	}
	t.cors.HandlerFunc(w, r)
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// dropCORS drops what the service says about CORS, which is the gateway's to say.
func (c *CORS) dropCORS(answer http.Header) {
	if !c.allows() {
		return
	}
	maps.DeleteFunc(answer, func(name string, _ []string) bool { return strings.HasPrefix(name, "Access-Control-") })
}
