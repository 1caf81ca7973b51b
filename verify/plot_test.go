package verify

import (
	"fmt"
	"html/template"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

// drawnMarks is how many marks a look has in a picture.
func drawnMarks(picture template.HTML, look look) int {
	return strings.Count(string(picture), look.path)
}

// 10 000 attempts are more than a page can hold or an eye can tell apart. Those that stand alone are what it looks for.
func TestAPlotOfManyAttemptsIsThinnedAndKeepsWhatStandsAlone(t *testing.T) {
	t.Parallel()
	l := sampleLoad(0, 10_000)
	l.Samples[7000].Took = 9 * time.Second
	l.Samples[100].Fault = faultTwice
	for _, size := range []format{wide, narrow} {
		plot := latencyPlot(&l, size)
		dots, twice := drawnMarks(plot, faultLook("")), drawnMarks(plot, faultLook(faultTwice))
		if dots > size.marks || dots < size.marks/4 {
			t.Errorf("%s: %d dots, want at most %d, and not much less", size.class, dots, size.marks)
		}
		if twice != 1 {
			t.Errorf("%s: the one fault is drawn %d times", size.class, twice)
		}
		axis := newLogAxis(&l)
		f := newFrame(size, &l)
		alone := "M" + coordinate(f.x(l.Samples[7000].At)) + " " + coordinate(f.y(axis.part(9*time.Second)))
		if !strings.Contains(string(plot), alone+dot.path) {
			t.Errorf("%s: the slowest attempt is not drawn", size.class)
		}
		if len(plot) > 150_000 {
			t.Errorf("%s: the plot takes %d bytes", size.class, len(plot))
		}
	}
}

// places are where something begins in a picture.
var places = regexp.MustCompile(`[ML](-?[\d.]+) (-?[\d.]+)| x="([\d.-]+)" y="([\d.-]+)"`)

// Whatever the figures are, everything lies within the picture.
func TestPlotsOfExtremesStayInTheirFrame(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Load{
		"nothing":          {},
		"one, at once":     {Attempts: 1, Samples: []Sample{{Kind: "success"}}},
		"all the same":     {Duration: time.Second, Attempts: 2, P50: ms, P95: ms, P99: ms, Samples: []Sample{{Took: ms}, {Took: ms}}},
		"negative":         {Duration: -1, Attempts: 1, Samples: []Sample{{At: -5 * time.Second, Took: -time.Second}}},
		"from ns to hours": {Duration: time.Minute, Samples: []Sample{{Took: 1}, {At: 3 * time.Hour, Took: 200 * time.Hour}}},
		"quantiles beyond": {Duration: time.Minute, P50: 1, P95: time.Hour, P99: 1000 * time.Hour, Samples: []Sample{{Took: ms}}},
		"all":              sampleLoad(0.2, 500),
	} {
		for _, size := range []format{wide, narrow} {
			calls := timeline(&FailedKey{Events: []Moment{{What: name}}}, size)
			for _, picture := range []template.HTML{latencyPlot(&l, size), answersPlot(&l, size), calls} {
				text := regexp.MustCompile(`<title>.*?</title>`).ReplaceAllString(string(picture), "")
				if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || len(text) > 200_000 {
					t.Errorf("%s: %.1000s", name, text)
				}
				for _, place := range places.FindAllStringSubmatch(text, -1) {
					var x, y float64
					fmt.Sscan(place[1]+place[3], &x) //nolint:errcheck // it is of digits
					fmt.Sscan(place[2]+place[4], &y) //nolint:errcheck // it is of digits
					if x < 0 || x > size.width || y < 0 || y > size.height {
						t.Errorf("%s: %s lies outside", name, place[0])
					}
				}
				for _, negative := range regexp.MustCompile(`(width|height)="-[^"]*"`).FindAllString(text, -1) {
					t.Errorf("%s: %s", name, negative)
				}
			}
		}
	}
}

func TestEveryFaultHasItsOwnMark(t *testing.T) {
	t.Parallel()
	seen := map[shape]string{}
	for _, fault := range append([]string{"", "one that nobody knows"}, faultKinds[:]...) {
		l := faultLook(fault)
		if other, taken := seen[l.shape]; taken && fault != "one that nobody knows" && other != "one that nobody knows" {
			t.Errorf("%q and %q look the same", fault, other)
		}
		seen[l.shape] = fault
	}
	colors := map[string]bool{}
	for _, kind := range append([]string{"another"}, meanings[:]...) {
		if c := kindColor(kind); colors[c] || !strings.Contains(pageStyle, "."+c+" {") {
			t.Errorf("%q has no colour of its own: %s", kind, c)
		} else {
			colors[c] = true
		}
	}
}

func TestAxesHaveRoundTicks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		least, most time.Duration
		from, to    float64
	}{
		{ms, 10 * ms, 0.001, 0.01},
		{3 * ms, 61 * ms, 0.002, 0.1},
		{12 * ms, 12 * ms, 0.01, 0.05},
		{0, 2 * time.Second, 0.00001, 2},
	} {
		a := newLogAxis(&Load{Samples: []Sample{{Took: tt.least}, {Took: tt.most}}})
		if math.Abs(a.least/tt.from-1) > 1e-6 || math.Abs(a.most/tt.to-1) > 1e-6 {
			t.Errorf("%v to %v: the axis goes from %v to %v, want %v to %v", tt.least, tt.most, a.least, a.most, tt.from, tt.to)
		}
	}
	for _, tt := range []struct {
		length float64
		most   int
		want   float64
		label  string
	}{{30, 10, 5, "10"}, {30, 4, 10, "20"}, {1, 10, 0.1, "0.2"}, {0.03, 10, 0.005, "0.010"}, {7, 7, 1, "2"}, {11, 10, 2, "4"}} {
		step := niceStep(tt.length, tt.most)
		if label := tickLabel(2*step, step); math.Abs(step-tt.want) > 1e-9 || label != tt.label {
			t.Errorf("niceStep(%v, %d) = %v, its second tick %s; want %v, %s", tt.length, tt.most, step, label, tt.want, tt.label)
		}
	}
}

// Heights are attempts, also where only some of them are samples.
func TestAnswersAreScaledToAllAttempts(t *testing.T) {
	t.Parallel()
	l := Load{Duration: 60 * time.Second, Attempts: 6000, Kinds: []Count{{"success", 6000}}}
	for i := range 600 {
		l.Samples = append(l.Samples, Sample{At: time.Duration(i) * 100 * ms, Kind: "success"})
	}
	plot := string(answersPlot(&l, wide))
	if n := strings.Count(plot, ": 100 a second, success</title>"); n != wide.bins {
		t.Errorf("%d of %d bars show the 100 attempts a second that there were:\n%s", n, wide.bins, plot)
	}
}

func TestATimelineShowsWhichCallsOverlap(t *testing.T) {
	t.Parallel()
	all := stretches(sampleFailures()[1].Events)
	var got []string
	for _, s := range all {
		got = append(got, fmt.Sprintf("%s %v-%v", s.label, s.from, s.to))
	}
	want := []string{
		"call 7, no answer 12.03s-13.18s", "call 8, in progress 12.031s-12.04s", "call 9, success 12.31s-12.322s",
		"call 10, success 13.252s-13.264s", " 13.4s-13.4s",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	picture := string(timeline(&sampleFailures()[1], wide))
	for _, want := range []string{
		`<rect class="k1" x="2" y="3"`, `<rect class="k3" x="2.6" y="20"`,
		"fault: black hole; +13.180 s no answer, read: connection reset by peer</title>",
	} {
		if !strings.Contains(picture, want) {
			t.Errorf("%s is not in\n%s", want, picture)
		}
	}
	if got := timeline(&FailedKey{}, wide); got != "" {
		t.Errorf("nothing has happened, and the timeline is %s", got)
	}
}
