package shop

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"base": path.Base, "lower": strings.ToLower, "sorted": sorted[*huma.Response], "headers": sorted[*huma.Header], "names": headerNames,
		"schema": func(m map[string]*huma.MediaType) string {
			for _, media := range m {
				if media.Schema != nil {
					return path.Base(media.Schema.Ref)
				}
			}
			return ""
		},
		"json": func(v any) (string, error) {
			text, err := json.MarshalIndent(v, "", "  ")
			return string(text), err
		},
	}).Parse(pageText))
)

// An operationOnPage is one call of the API.
type operationOnPage struct {
	Method, Path string
	*huma.Operation
}

// A tagOnPage is a group of calls.
type tagOnPage struct {
	*huma.Tag
	Operations []operationOnPage
}

// servePage serves the description of the API to people. It needs nothing but itself: no script, nothing from
// elsewhere.
func (s *Shop) servePage(mux *http.ServeMux) error {
	api := s.api.OpenAPI()
	var groups []tagOnPage
	for _, tag := range api.Tags {
		group := tagOnPage{Tag: tag}
		for _, at := range slices.Sorted(maps.Keys(api.Paths)) {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				if op := s.described(method, at); op != nil && slices.Contains(op.Tags, tag.Name) {
					group.Operations = append(group.Operations, operationOnPage{method, at, op})
				}
			}
		}
		groups = append(groups, group)
	}
	var text bytes.Buffer
	err := page.Execute(&text, map[string]any{
		"API": api, "Groups": groups, "Style": template.CSS(pageStyle), "Codes": codes, "GuardCodes": guardCodes,
		"Schemas": api.Components.Schemas.Map(),
	})
	if err != nil {
		return fmt.Errorf("make the page about the API: %w", err)
	}
	style := sha256.Sum256([]byte(pageStyle))
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) + "'"
	mux.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		w.Write(text.Bytes()) //nolint:errcheck // the client has gone
	})
	return nil
}

// sorted returns the entries of a map by name.
func sorted[V any](m map[string]V) (all []struct {
	Name  string
	Value V
},
) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, struct {
			Name  string
			Value V
		}{name, m[name]})
	}
	return all
}

// headerNames returns the names of a response's headers.
func headerNames(m map[string]*huma.Header) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
