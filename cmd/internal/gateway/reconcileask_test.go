package gateway

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

func TestAQuestionIsAPathWithOnePlaceForTheOperation(t *testing.T) {
	t.Parallel()
	upstream := &url.URL{Scheme: "http", Host: "up:8080", Path: "/api"}
	id := driver.ID{0xff, 0xef}
	for _, c := range []struct{ template, want, wrong string }{
		{"/internal/operations/{operation}", "http://up:8080/api/internal/operations/" + id.String(), ""},
		{"/{operation}/outcome/", "http://up:8080/api/" + id.String() + "/outcome/", ""},
		{"/outcome?of={operation}&v=1", "http://up:8080/api/outcome?of=" + id.String() + "&v=1", ""},
		{"/a%2Fb/{operation}", "http://up:8080/api/a%2Fb/" + id.String(), ""},
		{"", "", "want a path"},
		{"operations/{operation}", "", "want a path"},
		{"http://elsewhere/{operation}", "", "want a path"},
		{"//elsewhere/{operation}", "", "not another host"},
		{"/operations", "", "{operation} must stand"},
		{"/{id}", "", "{operation} must stand"},
		{"/{operation}/{operation}", "", "and once"},
		{"/{scope}/{operation}", "", "the only thing"},
		{"/{operation}#x", "", "fragment"},
		{"/%zz/{operation}", "", "invalid URL escape"},
	} {
		q, err := newQuestion(upstream, c.template)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%q: %v, want %q", c.template, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.template, err)
			continue
		}
		if at, err := q.about(id); err != nil || at.String() != c.want {
			t.Errorf("%q: %v, %v; want %s", c.template, at, err, c.want)
		}
	}
}

func TestTheResultOfAQuestionTellsWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		asked bool
		found semel.Found
		reads driver.Reading
		err   error
		want  string
		why   string
	}{
		{false, 0, driver.ReadsDone, nil, "", "there was nothing to settle"},
		{false, 0, driver.ReadsUnknown, broken, "failed", "the store can't be asked"},
		{true, semel.FoundNothing, driver.ReadsUnknown, nil, "later", "nothing was found"},
		{true, semel.FoundNothing, driver.ReadsUnknown, broken, "later", "the upstream can't be asked"},
		{true, semel.FoundDone, driver.ReadsDone, nil, "done", ""},
		{true, semel.FoundDone, driver.ReadsDone, broken, "done", "settled, but not audited"},
		{true, semel.FoundNever, driver.ReadsFree, nil, "never", ""},
		{true, semel.FoundDone, driver.ReadsUnknown, broken, "failed", "not settled"},
		{true, semel.FoundNever, driver.ReadsDone, nil, "refused", "an operator has completed it"},
		{true, semel.FoundNever, driver.ReadsUnknown, nil, "refused", "another has seized it"},
		{true, semel.FoundDone, driver.ReadsFree, nil, "refused", "an operator has released it"},
	} {
		if got := reconcileResult(c.asked, c.found, c.reads, c.err); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
