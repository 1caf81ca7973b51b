package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/semelhq/semel/driver"
)

// neverGiven are headers of one exchange. The server sets them by itself for each exchange, or they must not reach a
// second client.
var neverGiven = []string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Set-Cookie", "Set-Cookie2", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// checkAnswer reports why an answer can't be replayed to a client of HTTP.
func checkAnswer(a *driver.Response) error {
	if a == nil {
		return nil
	}
	if a.Status < 200 || a.Status > 599 {
		return fmt.Errorf("the answer's status is %d, want 200 to 599", a.Status)
	}
	if (a.Status == http.StatusNoContent || a.Status == http.StatusNotModified) && len(a.Body) > 0 {
		return fmt.Errorf("an answer with status %d has no body", a.Status)
	}
	if a.Codec != "" || len(a.Trailer) > 0 {
		return errors.New("the answer has a codec or trailers")
	}
	for name, values := range a.Header {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !isToken(name):
			return fmt.Errorf("the answer's header %q has no valid name", name)
		case slices.Contains(neverGiven, canonical) || strings.HasPrefix(canonical, "Proxy-"):
			return fmt.Errorf("the answer's header %s belongs to one exchange and is never replayed", canonical)
		case slices.ContainsFunc(values, func(v string) bool { return strings.ContainsFunc(v, isControl) }):
			return fmt.Errorf("the answer's header %s holds control characters", canonical)
		}
	}
	return nil
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c > unicode.MaxASCII || c < '!' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) || c == 0x7f
	})
}

func isControl(c rune) bool { return c != '\t' && unicode.IsControl(c) }
