package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// JSON writes the report in JSON, indented. Equal reports give equal bytes. A figure that is no number, such as a rate
// of nothing, is 0 there, and a list is never null.
func (r *Report) JSON(w io.Writer) error {
	c := *r
	c.Checks = append([]Result{}, r.Checks...)
	for i := range c.Checks {
		c.Checks[i].Rules = append([]string{}, c.Checks[i].Rules...)
	}
	c.Gates = slices.Clone(r.Gates)
	for i := range c.Gates {
		makeFinite(&c.Gates[i].Bound, &c.Gates[i].Got)
	}
	c.Loads = slices.Clone(r.Loads)
	for i := range c.Loads {
		l := &c.Loads[i]
		l.Kinds, l.Injected = append([]Count{}, l.Kinds...), append([]Count{}, l.Injected...)
		makeFinite(&l.Faults, &l.Rate, &l.DuplicateRate, &l.ReplayRate, &l.SuccessRate, &l.ConflictRate)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(&c); err != nil {
		return fmt.Errorf("write the report as JSON: %w", err)
	}
	return nil
}

// makeFinite sets to 0 what JSON has no number for.
func makeFinite(figures ...*float64) {
	for _, x := range figures {
		if math.IsNaN(*x) || math.IsInf(*x, 0) {
			*x = 0
		}
	}
}
