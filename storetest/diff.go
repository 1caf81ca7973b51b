package storetest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/semelhq/semel/driver"
)

// diff says in which fields got differs from want, or nothing. Now is not compared, since it moves. An empty body or
// sealed request may be nil or not; a missing answer is not an empty one.
func diff(got, want driver.Record) string {
	var out []string
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		field := g.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		switch field.Name {
		case "Now":
		case "Response":
			out = append(out, diffAnswers(got.Response, want.Response)...)
		case "Sealed":
			if !bytes.Equal(got.Sealed, want.Sealed) {
				out = append(out, fmt.Sprintf("Sealed is %s, want %s", brief(got.Sealed), brief(want.Sealed)))
			}
		default:
			if gf, wf := g.Field(i).Interface(), w.Field(i).Interface(); gf != wf {
				out = append(out, fmt.Sprintf("%s is %#v, want %#v", field.Name, gf, wf))
			}
		}
	}
	return strings.Join(out, "; ")
}

func diffAnswers(got, want *driver.Response) (out []string) {
	if got == nil || want == nil {
		if got != want {
			out = append(out, fmt.Sprintf("Response is %s, want %s", presence(got), presence(want)))
		}
		return out
	}
	if got.Status != want.Status {
		out = append(out, fmt.Sprintf("Response.Status is %d, want %d", got.Status, want.Status))
	}
	if got.Codec != want.Codec {
		out = append(out, fmt.Sprintf("Response.Codec is %q, want %q", got.Codec, want.Codec))
	}
	if !bytes.Equal(got.Body, want.Body) {
		out = append(out, fmt.Sprintf("Response.Body is %s, want %s", brief(got.Body), brief(want.Body)))
	}
	out = append(out, diffFields("Response.Header", got.Header, want.Header)...)
	return append(out, diffFields("Response.Trailer", got.Trailer, want.Trailer)...)
}

func diffFields(what string, got, want map[string][]string) (out []string) {
	for name, values := range want {
		if !slices.Equal(got[name], values) {
			out = append(out, fmt.Sprintf("%s[%q] is %q, want %q", what, name, got[name], values))
		}
	}
	for name, values := range got {
		if _, ok := want[name]; !ok {
			out = append(out, fmt.Sprintf("%s has %q: %q, want none", what, name, values))
		}
	}
	slices.Sort(out)
	return out
}

func presence(a *driver.Response) string {
	if a == nil {
		return "nil"
	}
	return fmt.Sprintf("an answer with status %d and %d bytes", a.Status, len(a.Body))
}

// brief shows bytes without filling the screen.
func brief(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}
