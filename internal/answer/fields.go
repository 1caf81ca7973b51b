package answer

import (
	"net/http"
	"slices"
	"strings"
)

// neverStored are the response headers that must not be replayed, because they belong to one exchange: to its
// connection, its time, its principal's session, or its trace. Others are recognised by a part of their names;
// see ofOneExchange.
var neverStored = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Date": true, "Server": true, "Alt-Svc": true, "Strict-Transport-Security": true,
	"Www-Authenticate": true, "Authentication-Info": true,
	"Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Content-Length": true, "Preference-Applied": true,
	"Traceparent": true, "Tracestate": true, "Traceresponse": true, "Baggage": true, "Server-Timing": true,
	"B3": true, "Sentry-Trace": true, "X-Cloud-Trace-Context": true, "X-Amz-Id-2": true, "X-Amz-Cf-Id": true, "Cf-Ray": true,
	"Idempotency-Key": true, "Idempotency-Expires": true, "Idempotency-Status": true, "Idempotency-Retryable": true,
	CodeHeader: true, "Idempotent-Replayed": true,
	CredentialsField: true, // the guard's own
}

var neverStoredPrefixes = []string{"Proxy-", "X-B3-", http.TrailerPrefix}

// ofOneExchange are the words, and pairs of words, that name credentials, or an exchange's ids, or its rate limit. APIs
// use them as parts of their own header names. The words of a name are the parts between its hyphens.
var ofOneExchange = set(
	"Authorization", "Token", "Csrf", "Xsrf", "Csrftoken", "Xsrftoken", "Authtoken", "Accesstoken", "Refreshtoken", "Jwt",
	"Bearer", "Secret", "Password", "Credential", "Credentials", "Session", "Sessionid", "Cookie", "Apikey", "Api-Key", "Access-Key",
	"Request-Id", "Requestid", "Correlation-Id", "Trace-Id", "Traceid", "Span-Id", "Debug-Id",
	"Ratelimit", "Rate-Limit", "Call-Limit",
)

// listTokens are words in a header's name. With one of them, the token says where a list continues, and is no
// credential.
var listTokens = set("Page", "Continuation", "Next", "Cursor", "Sync")

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}

// ordinary are headers that most answers have. They belong to no exchange: they need no look at the parts of their
// names.
var ordinary = set("Content-Type", "Location", "Etag", "Last-Modified", "Cache-Control", "Content-Encoding",
	"Content-Language", "Vary", "Link")

// CodeHeader names a guard's refusal to clients and to other guards. They need not know the form of its body.
const CodeHeader = "Idempotency-Code"

// CredentialsField is the name under which the digest of a request's credentials is stored among the headers. It is not
// a valid header name: no handler can send it, and net/http would not send it.
const CredentialsField = ":credentials"

// NeverReplayed reports whether a response header belongs to one exchange. The name is in canonical form.
func NeverReplayed(name string) bool {
	return !ordinary[name] && ofExchange(name)
}

// ofExchange is NeverReplayed by the parts of a name.
func ofExchange(name string) bool {
	if IsCORS(name) {
		return false // it has a rule of its own
	}
	if neverStored[name] {
		return true
	}
	for _, p := range neverStoredPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	list := false
	before, from := 0, 0 // the starts of the previous word and of this word
	for from <= len(name) {
		to := len(name)
		if n := strings.IndexByte(name[from:], '-'); n >= 0 {
			to = from + n
		}
		word := name[from:to]
		list = list || listTokens[word]
		if ofOneExchange[word] && !(list && word == "Token") || ofOneExchange[name[before:to]] {
			return true
		}
		before, from = from, to+1
	}
	return false
}

// CORSPrefix is the prefix of the headers that say which pages may read an answer.
const CORSPrefix = "Access-Control-"

// IsCORS reports whether a header says which pages may read the answer, and which parts of it.
func IsCORS(name string) bool { return strings.HasPrefix(name, CORSPrefix) }

// FieldNames returns the field names that a list-valued header names, in canonical form.
func FieldNames(lines []string) (names []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, http.CanonicalHeaderKey(name))
			}
		}
	}
	return names
}

// AddFields adds the handler's headers to dst.
func AddFields(dst, answer http.Header) {
	for name, values := range answer {
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			SetField(dst, name, values)
		}
	}
}

// layered are the headers to which several layers add. The handler can't see what the layers above it have set, so it
// must not replace that.
var layered = map[string]bool{
	"Link": true, "Server-Timing": true, "Set-Cookie": true, "Vary": true, "Www-Authenticate": true,
}

// SetField sets a header of the handler's answer on the live answer, and replaces what was there.
func SetField(dst http.Header, name string, values []string) {
	before := dst[name]
	if len(before) == 0 || len(values) == 0 || !layered[name] {
		dst[name] = values
		return
	}
	both := slices.Clip(before)
	for _, v := range values {
		if !slices.Contains(before, v) {
			both = append(both, v)
		}
	}
	dst[name] = both
}

// Some returns a copy of the fields that keep selects. It also keeps a name without values, which stops net/http from
// adding the field by itself.
func Some(fields http.Header, keep func(name string) bool) http.Header {
	var some http.Header
	for name, values := range fields {
		if !keep(name) {
			continue
		}
		if some == nil {
			some = make(http.Header, len(fields))
		}
		some[name] = append(make([]string, 0, len(values)), values...)
	}
	return some
}

// Trailers returns the trailers that a handler has set in its header, under their own names. announced are the lines of
// the header Trailer that the handler has sent.
func Trailers(header http.Header, announced []string) http.Header {
	var t http.Header
	set := func(name string, values []string) {
		if len(values) == 0 {
			return
		}
		if t == nil {
			t = http.Header{}
		}
		t[name] = slices.Clone(values)
	}
	for _, name := range FieldNames(announced) {
		set(name, header[name])
	}
	for name, values := range header {
		if plain, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			set(http.CanonicalHeaderKey(plain), values)
		}
	}
	return t
}
