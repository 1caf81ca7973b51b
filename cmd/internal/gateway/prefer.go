package gateway

import (
	"net/http"
	"strings"
)

// withoutTaken takes the preferences that the gateway has met by itself out of a request to the upstream: it is the
// gateway that waits, and answers 202. Others stay as they are.
func withoutTaken(h http.Header) {
	lines := h["Prefer"]
	if len(lines) == 0 {
		return
	}
	var left []string
	for _, line := range lines {
		var kept []string
		for rest := line; rest != ""; {
			var preference string
			preference, rest = cutPreference(rest)
			name, _, _ := strings.Cut(preference, ";")
			name, _, _ = strings.Cut(name, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async", "wait", "":
			default:
				kept = append(kept, strings.TrimSpace(preference))
			}
		}
		if len(kept) > 0 {
			left = append(left, strings.Join(kept, ", "))
		}
	}
	if delete(h, "Prefer"); len(left) > 0 {
		h["Prefer"] = left
	}
}

// cutPreference cuts a line at the first comma outside a quoted string (RFC 9110, section 5.6.4).
func cutPreference(line string) (preference, rest string) {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == ',' && !quoted:
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}
