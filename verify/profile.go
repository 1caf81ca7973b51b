package verify

import (
	"fmt"
	"net/http"
	"slices"
)

// A Profile is a dialect: which answers mean what.
type Profile struct {
	// KeyHeader is the request's field that carries the key.
	KeyHeader string `yaml:"key_header"`
	// Quoted sends keys as structured-field strings (RFC 9651 section 3.3.3), as
	// draft-ietf-httpapi-idempotency-key-header-07 has them, and not bare.
	Quoted bool `yaml:"quoted"`
	// KeyRequired says that a request without a key is refused.
	KeyRequired bool `yaml:"key_required"`
	// Missing, Invalid, Reused and Busy are the statuses of a refusal: no key, a malformed key, a key of another request,
	// a request in progress.
	Missing []int `yaml:"missing"`
	Invalid []int `yaml:"invalid"`
	Reused  []int `yaml:"reused"`
	Busy    []int `yaml:"busy"`
	// Marker is the field that only replays carry; "" for none.
	Marker string `yaml:"marker"`
	// Problems says that refusals have a problem document for a body (RFC 9457).
	Problems bool `yaml:"problems"`
}

// profiles are the known dialects.
var profiles = map[string]Profile{
	"draft07": {
		KeyHeader: "Idempotency-Key", Quoted: true, KeyRequired: true,
		Missing: []int{http.StatusBadRequest}, Invalid: []int{http.StatusBadRequest},
		Reused: []int{http.StatusUnprocessableEntity}, Busy: []int{http.StatusConflict}, Problems: true,
	},
	"stripe": {
		KeyHeader: "Idempotency-Key",
		Missing:   []int{http.StatusBadRequest}, Invalid: []int{http.StatusBadRequest},
		Reused: []int{http.StatusBadRequest}, Busy: []int{http.StatusConflict}, Marker: "Idempotent-Replayed",
	},
}

// DefaultProfile is that of scenarios that name none.
const DefaultProfile = "draft07"

// custom is the name of a profile that a scenario spells out.
const custom = "custom"

func (p *Profile) check() error {
	if p.KeyHeader == "" || !isToken(p.KeyHeader) {
		return fmt.Errorf("key_header: %q is not a field name", p.KeyHeader)
	}
	for _, list := range []struct {
		name     string
		statuses []int
	}{{"missing", p.Missing}, {"invalid", p.Invalid}, {"reused", p.Reused}, {"busy", p.Busy}} {
		if len(list.statuses) == 0 {
			return fmt.Errorf("%s: at least one status is needed", list.name)
		}
		for _, s := range list.statuses {
			if s < 400 || s > 599 {
				return fmt.Errorf("%s: %d is not a status of a refusal, 400 to 599", list.name, s)
			}
		}
	}
	return nil
}

// A meaning is what an answer says about its operation.
type meaning uint8

const (
	noAnswer  meaning = iota // or a part of one
	succeeded                // 2xx
	busy                     // it is in progress
	reused                   // the key stands for another request
	unknown                  // nobody knows the outcome, and asking again won't help
	later                    // nothing was done, or nothing is known yet: 408, 425, 429, 5xx
	refused                  // any other answer
)

var meanings = [...]string{"no answer", "success", "in progress", "key reused", "outcome unknown", "later", "refused"}

func (m meaning) String() string { return meanings[m] }

// read returns what an answer means.
func (p *Profile) read(a *answer) meaning {
	switch {
	case a.err != nil:
		return noAnswer
	case a.status/100 == 2:
		return succeeded
	}
	switch a.code {
	case "IDEMPOTENCY_OUTCOME_UNKNOWN":
		return unknown
	case "IDEMPOTENCY_IN_PROGRESS":
		return busy
	case "IDEMPOTENCY_KEY_REUSED":
		return reused
	}
	switch {
	case slices.Contains(p.Busy, a.status):
		return busy
	case slices.Contains(p.Reused, a.status) && a.problem:
		return reused
	case a.status >= 500, a.status == http.StatusRequestTimeout, a.status == http.StatusTooEarly, a.status == http.StatusTooManyRequests:
		return later
	}
	return refused
}
