package prefer

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
		want  Preferences
		why   string
	}{
		{nil, Preferences{}, "nothing is preferred"},
		{[]string{""}, Preferences{}, "an empty line"},
		{[]string{"respond-async"}, Preferences{Async: true}, "alone"},
		{[]string{"Respond-ASYNC"}, Preferences{Async: true}, "names have no case"},
		{[]string{"respond-async, wait=10"}, Preferences{true, true, 10 * s}, "with a bound"},
		{[]string{"wait=10,respond-async"}, Preferences{true, true, 10 * s}, "in any order"},
		{[]string{"wait=10", "return=minimal", "respond-async"}, Preferences{true, true, 10 * s}, "on several lines"},
		{[]string{"\t respond-async \t;\tfoo=bar , wait = 7 ; x"}, Preferences{true, true, 7 * s}, "with space and parameters"},
		{[]string{`wait="7"`}, Preferences{false, true, 7 * s}, "a value may be quoted"},
		{[]string{`respond-async=""`}, Preferences{Async: true}, "an empty value is none"},
		{[]string{`respond-async="yes"`}, Preferences{}, "it has no other value"},
		{[]string{`foo="a, respond-async", bar`}, Preferences{}, "what is quoted is one value"},
		{[]string{`foo="a\", respond-async, wait=3"`}, Preferences{}, "so is a quoted quote"},
		{[]string{`foo; respond-async; wait=3`}, Preferences{}, "parameters of another preference"},
		{[]string{`foo; bar="; , ", respond-async`}, Preferences{Async: true}, "after a quoted parameter"},
		{[]string{`foo="never ends, respond-async`}, Preferences{}, "within a quote that does not end"},
		{[]string{"wait=3, wait=4"}, Preferences{false, true, 3 * s}, "the first counts"},
		{[]string{"wait=soon, wait=4"}, Preferences{}, "also if it can't be read"},
		{[]string{"wait=-1"}, Preferences{}, "not a number of seconds"},
		{[]string{"wait=1.5"}, Preferences{}, "not a whole number"},
		{[]string{"wait"}, Preferences{}, "no number"},
		{[]string{"wait=99999999999999999999"}, Preferences{}, "beyond any number"},
		{[]string{"wait=0"}, Preferences{false, true, 0}, "no wait at all"},
		{[]string{"respond-asynchronously, awaits=3"}, Preferences{}, "other names"},
		{[]string{",,; ,=, =3, respond-async"}, Preferences{Async: true}, "after rubbish"},
	} {
		t.Run(fmt.Sprint(c.lines), func(t *testing.T) {
			t.Parallel()
			if got := Of(c.lines); got != c.want {
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
		alone, twice := Of([]string{line}), Of([]string{line, line})
		if alone != twice {
			t.Errorf("%q: said twice it is %+v, once %+v", line, twice, alone)
		}
		if alone.Wait < 0 || alone.Wait > 0 && !alone.Waits {
			t.Errorf("%q: %+v", line, alone)
		}
	})
}
