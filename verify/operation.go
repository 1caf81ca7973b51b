package verify

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// An operation is a request under a key of its own.
type operation struct {
	scenario *Scenario
	template Template
	values   values
	key      string
	tenant   map[string]string
}

// newOperation returns one of the request, or of a variant of it.
func (s *Scenario) newOperation(variant string) *operation {
	t := s.Request
	if variant != "" {
		t = s.variant(variant)
	}
	return &operation{scenario: s, template: t, values: values{}, key: newUUID()}
}

// request returns the operation's request.
func (o *operation) request() request {
	return o.keyed(o.bare(), o.key)
}

// keyed returns a request with a key, in the form of the profile.
func (o *operation) keyed(r request, key string) request {
	value := key
	if o.scenario.profile.Quoted {
		value = strconv.Quote(key)
	}
	return r.with(o.scenario.profile.KeyHeader, value)
}

// bare returns the request without a key.
func (o *operation) bare() request {
	fill := func(text string) string { return o.values.fill(text, o.scenario.Fields, &o.scenario.source) }
	r := request{method: o.template.Method, path: fill(o.template.Path)}
	headers := map[string]string{}
	maps.Copy(headers, o.scenario.Headers)
	if o.tenant == nil && len(o.scenario.Tenants) > 0 {
		maps.Copy(headers, o.scenario.Tenants[0].Headers)
	}
	maps.Copy(headers, o.tenant)
	maps.Copy(headers, o.template.Headers)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		r.headers = append(r.headers, field{name, fill(headers[name])})
	}
	r.body = []byte(fill(o.template.body()))
	if len(r.body) > 0 && json.Valid(r.body) && !r.has("Content-Type") {
		r = r.with("Content-Type", "application/json")
	}
	return r
}

func (r request) has(name string) bool {
	return slices.ContainsFunc(r.headers, func(f field) bool { return strings.EqualFold(f.name, name) })
}

// other returns another request of the same method and path, with other generated fields, or, where the body has none,
// with one more member.
func (o *operation) other() request {
	first := o.bare()
	again := *o
	again.values = values{}
	for range 3 {
		if r := again.bare(); string(r.body) != string(first.body) {
			r.path = first.path
			return r
		}
	}
	r := first
	var members map[string]json.RawMessage
	if json.Unmarshal(r.body, &members) == nil && members != nil {
		members["semel_verify"] = json.RawMessage(strconv.Quote(newUUID()))
		r.body, _ = json.Marshal(members) //nolint:errchkjson // it was JSON before
		return r
	}
	r.body = append(slices.Clone(r.body), ' ')
	return r
}
