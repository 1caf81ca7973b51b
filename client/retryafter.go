package client

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// never is a delay that no limit allows.
const never = 100 * 365 * 24 * time.Hour

// retryAfter returns how long a response asks to wait, the longest where it says so in several fields. What can't be
// read says nothing; a date in the past asks for no delay.
func retryAfter(status int, h http.Header, now time.Time) (d time.Duration, ok bool) {
	if d, ok = deltaOrDate(h.Get("Retry-After"), h.Get("Date"), now); !ok {
		d = 0
	}
	if reset, found := rateLimitReset(status, h); found {
		d, ok = max(d, reset), true
	}
	return d, ok
}

// deltaOrDate reads Retry-After (RFC 9110, section 10.2.3). A date is relative to that of the response if there is one:
// what the two clocks say differs.
func deltaOrDate(text, date string, now time.Time) (time.Duration, bool) {
	text = strings.Trim(text, " \t")
	if d, ok := seconds(text); ok {
		return d, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(date); err == nil {
		now = sent
	}
	return min(max(at.Sub(now), 0), never), true
}

// seconds reads a whole number of seconds that is not negative; one that is too large is never.
func seconds(text string) (time.Duration, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > int64(never/time.Second) {
		return never, true // digits only: out of range
	}
	return time.Duration(n) * time.Second, true
}

// rateLimitReset reads how many seconds the quotas that are used up need to come back, from RateLimit of
// draft-ietf-httpapi-ratelimit-headers: a list of policies with the parameters r and t. A quota of which the rest is
// not told is used up if the status is 429.
func rateLimitReset(status int, h http.Header) (longest time.Duration, found bool) {
	for _, policy := range strings.Split(strings.Join(h.Values("RateLimit"), ","), ",") {
		parameters := map[string]string{}
		for _, part := range strings.Split(policy, ";")[1:] {
			name, value, _ := strings.Cut(strings.Trim(part, " \t"), "=")
			parameters[name] = value
		}
		d, ok := seconds(parameters["t"])
		left, told := seconds(parameters["r"])
		if ok && (told && left == 0 || !told && status == http.StatusTooManyRequests) {
			longest, found = max(longest, d), true
		}
	}
	return longest, found
}
