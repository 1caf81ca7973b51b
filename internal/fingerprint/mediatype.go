package fingerprint

import (
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/structuredfield"
)

// A mediaType is a Content-Type in normal form. Type and parameter names are in lower case, and parameters are sorted
// by name. charset=utf-8, the default of the types that are canonicalised, is left out.
type mediaType struct {
	sent     []string // the field lines
	name     string   // "" if there is not exactly one type that can be read
	params   []string // alternating names and values
	boundary string
	charset  string // if other than UTF-8
}

// ParseMediaType reads the field lines of Content-Type. The result has no name if there is not exactly one type that
// can be read.
func ParseMediaType(sent []string) mediaType {
	m := mediaType{sent: sent}
	if len(sent) != 1 {
		return m
	}
	name, rest, _ := strings.Cut(sent[0], ";")
	if rest = strings.TrimSpace(rest); rest == "" || strings.EqualFold(rest, "charset=utf-8") {
		// The type that nearly every JSON client sends is read without the allocations of mime.ParseMediaType.
		name = strings.ToLower(strings.TrimSpace(name))
		if kind, sub, ok := strings.Cut(name, "/"); ok && structuredfield.IsToken(kind) && structuredfield.IsToken(sub) {
			m.name = name
		}
		return m
	}
	name, params, err := mime.ParseMediaType(sent[0])
	if err != nil || !strings.Contains(name, "/") {
		return m
	}
	m.name = name
	m.boundary = params["boundary"]
	if strings.EqualFold(params["charset"], "utf-8") {
		delete(params, "charset")
	}
	m.charset = params["charset"]
	for _, p := range slices.Sorted(maps.Keys(params)) {
		m.params = append(m.params, p, params[p])
	}
	return m
}

func (m *mediaType) JSON() bool {
	return m.charset == "" && (m.name == "application/json" || strings.HasSuffix(m.name, "+json"))
}

func (m *mediaType) Form() bool {
	return m.charset == "" && m.name == "application/x-www-form-urlencoded"
}

func (m *mediaType) multipart() bool {
	return strings.HasPrefix(m.name, "multipart/") && m.boundary != ""
}

// write writes the type. The boundary is left out if the body is compared by its parts. Else it counts, because it
// decides how a lenient reader reads the body.
func (m *mediaType) write(s *digest.Digest, withoutBoundary bool) {
	if m.name == "" {
		s.Flag(false)
		s.Texts(m.sent)
		return
	}
	s.Flag(true)
	s.Text(m.name)
	for i := 0; i < len(m.params); i += 2 {
		if m.params[i] == "boundary" && withoutBoundary {
			continue
		}
		s.Flag(true)
		s.Text(m.params[i])
		s.Text(m.params[i+1])
	}
	s.Flag(false)
}
