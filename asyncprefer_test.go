package semel

import (
	"fmt"
	"testing"
	"time"
)

func TestR33_R28_PreferencesAreReadAsRFC7240SaysThem(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		lines []string
		want  preferences
		why   string
	}{
		{nil, preferences{}, "nothing is preferred"},
		{[]string{""}, preferences{}, "an empty line"},
		{[]string{"respond-async"}, preferences{async: true}, "alone"},
		{[]string{"Respond-ASYNC"}, preferences{async: true}, "names have no case"},
		{[]string{"respond-async, wait=10"}, preferences{true, true, 10 * s}, "with a bound"},
		{[]string{"wait=10,respond-async"}, preferences{true, true, 10 * s}, "in any order"},
		{[]string{"wait=10", "return=minimal", "respond-async"}, preferences{true, true, 10 * s}, "on several lines"},
		{[]string{"\t respond-async \t;\tfoo=bar , wait = 7 ; x"}, preferences{true, true, 7 * s}, "with space and parameters"},
		{[]string{`wait="7"`}, preferences{false, true, 7 * s}, "a value may be quoted"},
		{[]string{`respond-async=""`}, preferences{async: true}, "an empty value is none"},
		{[]string{`respond-async="yes"`}, preferences{}, "it has no other value"},
		{[]string{`foo="a, respond-async", bar`}, preferences{}, "what is quoted is one value"},
		{[]string{`foo="a\", respond-async, wait=3"`}, preferences{}, "so is a quoted quote"},
		{[]string{`foo; respond-async; wait=3`}, preferences{}, "parameters of another preference"},
		{[]string{`foo; bar="; , ", respond-async`}, preferences{async: true}, "after a quoted parameter"},
		{[]string{`foo="never ends, respond-async`}, preferences{}, "within a quote that does not end"},
		{[]string{"wait=3, wait=4"}, preferences{false, true, 3 * s}, "the first counts"},
		{[]string{"wait=soon, wait=4"}, preferences{}, "also if it can't be read"},
		{[]string{"wait=-1"}, preferences{}, "not a number of seconds"},
		{[]string{"wait=1.5"}, preferences{}, "not a whole number"},
		{[]string{"wait"}, preferences{}, "no number"},
		{[]string{"wait=99999999999999999999"}, preferences{}, "beyond any number"},
		{[]string{"wait=0"}, preferences{false, true, 0}, "no wait at all"},
		{[]string{"respond-asynchronously, awaits=3"}, preferences{}, "other names"},
		{[]string{",,; ,=, =3, respond-async"}, preferences{async: true}, "after rubbish"},
	} {
		t.Run(fmt.Sprint(c.lines), func(t *testing.T) {
			t.Parallel()
			if got := preferencesOf(c.lines); got != c.want {
				t.Errorf("%q: %+v, want %+v: %s", c.lines, got, c.want, c.why)
			}
		})
	}
}

func FuzzPreferencesOf(f *testing.F) {
	for _, seed := range []string{"respond-async, wait=10", `foo="a\"b", wait="3"`, `"`, `\`, `a="\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		alone, twice := preferencesOf([]string{line}), preferencesOf([]string{line, line})
		if alone != twice {
			t.Errorf("%q: said twice it is %+v, once %+v", line, twice, alone)
		}
		if alone.wait < 0 || alone.wait > 0 && !alone.waits {
			t.Errorf("%q: %+v", line, alone)
		}
	})
}
