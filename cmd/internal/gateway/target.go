package gateway

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// sendable reports whether a target can be sent in a request line and names a path: with a space in its query, as
// HTTP/2 allows, a service would read the rest as the protocol, and what is no path has no route.
func sendable(r *http.Request) bool {
	for i := range len(r.URL.RawQuery) {
		if c := r.URL.RawQuery[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return strings.HasPrefix(r.URL.Path, "/")
}

// ambiguous reports whether services may differ on which path is meant: whether it has dot segments, empty ones,
// parameters, a backslash, a control character, or one of these encoded, once or twice.
func ambiguous(u *url.URL) bool {
	return severalReadings(u.EscapedPath()) || severalReadings(u.Path)
}

func severalReadings(path string) bool {
	if strings.Contains(path, "//") || strings.ContainsAny(path, `;\`) {
		return true
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	for i := range len(path) {
		if path[i] < ' ' || path[i] == 0x7f {
			return true
		}
		if path[i] == '%' && i+2 < len(path) {
			switch strings.ToLower(path[i+1 : i+3]) {
			case "2e", "2f", "3b", "5c":
				return true
			}
		}
	}
	return false
}

// reservedPath matches the paths that a service may take for that of a route's question: about an operation, or about
// who may have its answer.
func reservedPath(template string) *regexp.Regexp {
	path, _, _ := strings.Cut(template, "?")
	if decoded, err := url.PathUnescape(path); err == nil {
		path = decoded
	}
	before, after, found := strings.Cut(path, operationPlace)
	pattern := regexp.QuoteMeta(strings.TrimSuffix(before, "/"))
	if found {
		pattern = regexp.QuoteMeta(before) + "[^/]+" + regexp.QuoteMeta(strings.TrimSuffix(after, "/"))
	}
	return regexp.MustCompile("(?is)^" + pattern + "/?$")
}
