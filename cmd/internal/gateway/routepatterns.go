package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// patterns are patterns of http.ServeMux. Only its matching is used: no redirect and no refusal of its own, which would
// be the gateway's word instead of the service's. A slash at the end makes no difference, unless there is a pattern for
// that very path, nor does the case of a host, since a service may take the two for the same; a path that is not clean
// is matched as the clean one.
type patterns struct {
	mux        *http.ServeMux
	ignoreCase bool
	names      map[string]string // by the pattern that is matched
}

// everything is a pattern that matches where no other does, so that the mux has no reason to refuse a method.
const everything = "/"

// newPatterns returns patterns in whose paths upper and lower case differ, or do not.
func newPatterns(matchCase bool) *patterns {
	return &patterns{http.NewServeMux(), !matchCase, map[string]string{}}
}

var registeredAt = regexp.MustCompile(` \(registered at [^)]*\)`)

// add adds a pattern, unless it is malformed or conflicts with another one.
func (p *patterns) add(pattern string) (err error) {
	defer func() {
		if thrown := recover(); thrown != nil {
			err = fmt.Errorf("%s", registeredAt.ReplaceAllString(fmt.Sprint(thrown), ""))
		}
	}()
	matched := p.folded(pattern)
	p.mux.Handle(matched, http.NotFoundHandler())
	p.names[matched] = pattern
	return nil
}

// folded is a pattern with its host in lower case, and if case makes no difference its path.
func (p *patterns) folded(pattern string) string {
	path := patternPath(pattern)
	front := strings.TrimSuffix(pattern, path)
	method, host, found := strings.Cut(front, " ")
	if !found {
		method, host = "", front
	} else {
		method += " "
	}
	if p.ignoreCase {
		path = strings.ToLower(path)
	}
	return method + strings.ToLower(host) + path
}

// match returns the pattern that a request matches best, or "".
func (p *patterns) match(r *http.Request) string {
	u := *r.URL
	if p.ignoreCase {
		u.Path, u.RawPath = strings.ToLower(u.Path), strings.ToLower(u.RawPath)
	}
	matched := p.find(r, &u)
	if path := u.EscapedPath(); len(path) > 1 && path[len(path)-1] == '/' {
		if strings.Count(patternPath(matched), "/") != strings.Count(path, "/") { // else it is for that very path
			u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
			if u.Path != "" {
				matched = p.find(r, &u)
			}
		}
	}
	return p.names[matched]
}

func (p *patterns) find(r *http.Request, u *url.URL) string {
	host := strings.ToLower(r.Host)
	if name, port, found := strings.Cut(host, ".:"); found {
		host = name + ":" + port
	}
	_, pattern := p.mux.Handler(&http.Request{Method: r.Method, Host: strings.TrimSuffix(host, "."), URL: u})
	return pattern
}
