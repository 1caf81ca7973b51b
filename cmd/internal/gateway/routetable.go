package gateway

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
)

// PrintRoutes writes what becomes of which requests, as a table for people.
func (g *Gateway) PrintRoutes(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "ROUTE\tPROTECTS\tWITHOUT KEY\tLOST\tLEASE\tDEADLINE\tRETENTION\tSPECIAL")
	for _, r := range g.cfg.all() {
		p := &r.Policy
		fmt.Fprintf(tab, "%s\t%s\t%v\t%v\t%v\t%v\t%s\t%s\n", r.name(), strings.Join(r.protects(), ","), r.Unkeyed, p.OnLost,
			short(cmp.Or(p.Lease, driver.DefaultLease)), short(cmp.Or(p.MaxRun, defaults.MaxRun)),
			short(cmp.Or(p.Retention, driver.DefaultRetention)), strings.Join(r.special(), ", "))
	}
	return tab.Flush()
}

// short is a time without the zeros at its end.
func short(d time.Duration) string {
	if d == semel.Forever {
		return "forever"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// special is what sets a route apart.
func (r *Route) special() (special []string) {
	p := &r.Policy
	for _, s := range []struct {
		name string
		has  bool
	}{
		{"observes only", p.ObserveOnly},
		{"fails open", p.FailOpen},
		{"streams", p.Stream},
		{"respond_async", p.RespondAsync},
		{"complete", p.Complete},
		{"no_store", p.NoStore},
		{"keep_if", r.KeepIf != nil},
		{"reconcile", r.Reconcile != ""},
		{"authorize", r.Authorize != ""},
		{"replays to anyone", r.ReplayTo == ReplayToAnyone},
	} {
		if s.has {
			special = append(special, s.name)
		}
	}
	return special
}
