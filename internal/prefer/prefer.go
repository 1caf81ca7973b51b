// Package prefer reads the header Prefer (RFC 7240).
package prefer

import (
	"strconv"
	"strings"
	"time"
)

// Preferences are those of a client that a guard can meet (RFC 7240).
type Preferences struct {
	Async bool          // section 4.1: it would rather be told 202 than wait
	Waits bool          // section 4.3: it says how long it would wait
	Wait  time.Duration // in whole seconds
}

// Of reads the lines of Prefer. Of a preference that is said twice the first counts (section 2); one whose
// value is of the wrong form does not.
func Of(lines []string) (p Preferences) {
	var saidAsync, saidWait bool
	for _, line := range lines {
		for rest := line; rest != ""; {
			var preference string
			preference, rest = cutUnquoted(rest, ',')
			preference, _ = cutUnquoted(preference, ';') // what follows are its parameters
			name, value, _ := strings.Cut(preference, "=")
			name, value = strings.TrimSpace(name), unquoted(strings.TrimSpace(value))
			switch {
			case strings.EqualFold(name, "respond-async") && !saidAsync:
				saidAsync, p.Async = true, value == ""
			case strings.EqualFold(name, "wait") && !saidWait:
				saidWait = true
				if n, err := strconv.ParseUint(value, 10, 31); err == nil {
					p.Waits, p.Wait = true, time.Duration(n)*time.Second
				}
			}
		}
	}
	return p
}

// cutUnquoted cuts s at the first separator that is not within a quoted string (RFC 9110, section 5.6.4).
func cutUnquoted(s string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == separator && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// unquoted returns what stands in a quoted string, and anything else as it is.
func unquoted(word string) string {
	if len(word) >= 2 && word[0] == '"' && word[len(word)-1] == '"' {
		return word[1 : len(word)-1]
	}
	return word
}
