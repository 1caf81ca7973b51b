package fingerprint

import (
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/structuredfield"
)

// A mediaType is a Content-Type in normal form: type and parameter names in lower case, parameters sorted by name, and
// charset=utf-8, the default of the types that are canonicalised, left out.
type mediaType struct {
	sent     []string // the field lines
	name     string   // "" if there is not exactly one that can be read
	params   []string // names and values in turn
	boundary string
	charset  string // other than UTF-8
}

// ParseMediaType reads the field lines of Content-Type; nil if they are none that counts.
func ParseMediaType(sent []string) mediaType {
	m := mediaType{sent: sent}
	if len(sent) != 1 {
		return m
	}
	name, rest, _ := strings.Cut(sent[0], ";")
	if rest = strings.TrimSpace(rest); rest == "" || strings.EqualFold(rest, "charset=utf-8") {
		// What nearly every JSON client sends is read without the allocations of mime.ParseMediaType.
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

// write writes the type. The boundary is left out where the body is compared by its parts; elsewhere it decides what a
// lenient reader makes of the body.
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
