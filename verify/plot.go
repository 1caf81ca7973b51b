package verify

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"
)

// A format is the size of a plot. A page has each plot in two, for wide windows and for narrow ones: text of a wide
// plot that was scaled down could not be read.
type format struct {
	class                    string
	width, height            float64
	left, right, top, bottom float64 // what stands around the axes
	ticks                    int     // of the time, at most
	marks                    int     // at most
	bins                     int
}

var (
	wide   = format{"wide", 1000, 340, 62, 46, 12, 34, 10, 2500, 60}
	narrow = format{"narrow", 360, 300, 50, 34, 10, 30, 4, 1500, 24}
)

// frame is where a plot's axes lie, and what they show.
type frame struct {
	format
	until time.Duration // of the time axis, from 0 on; above 0
}

// newFrame is one for a load: from its begin to its last attempt, or to the end of its requests.
func newFrame(f format, l *Load) frame {
	until := l.Duration
	for _, s := range l.Samples {
		until = max(until, s.At)
	}
	return frame{f, max(until, time.Millisecond)}
}

func (f *frame) x(at time.Duration) float64 {
	part := min(max(float64(at)/float64(f.until), 0), 1)
	return f.left + part*(f.width-f.left-f.right)
}

// y is the height of a part of the axis, 0 to 1.
func (f *frame) y(part float64) float64 {
	return f.height - f.bottom - min(max(part, 0), 1)*(f.height-f.top-f.bottom)
}

// timeAxis draws the axis of the time, and where requests end if retries go on after that.
func (f *frame) timeAxis(d *drawing, l *Load) {
	step := niceStep(f.until.Seconds(), f.ticks)
	for n := 0; float64(n)*step <= f.until.Seconds(); n++ {
		at := time.Duration(float64(n) * step * float64(time.Second))
		d.line("tick", f.x(at), f.y(0), f.x(at), f.y(0)+4)
		d.label("middle", f.x(at), f.y(0)+17, tickLabel(float64(n)*step, step)+" s")
	}
	d.line("axis", f.left, f.y(0), f.width-f.right, f.y(0))
	if l.Duration > 0 && f.until > l.Duration+l.Duration/50 {
		d.line("over", f.x(l.Duration), f.y(0), f.x(l.Duration), f.y(1))
	}
}

// niceStep is 1, 2 or 5 times a power of ten, so that a length has at most so many of them.
func niceStep(length float64, most int) float64 {
	raw := length / float64(max(most, 1))
	scale := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, step := range []float64{1, 2, 5} {
		if step*scale >= raw {
			return step * scale
		}
	}
	return 10 * scale
}

// tickLabel has as many decimals as steps need.
func tickLabel(x, step float64) string {
	return fmt.Sprintf("%.*f", max(0, int(math.Ceil(-math.Log10(step)-1e-9))), x)
}

// shortest is the least time that the latency plot tells apart.
const shortest = 10 * time.Microsecond

// logAxis is an axis of times, between two of 1, 2 or 5 times a power of ten.
type logAxis struct{ least, most float64 } // seconds

func newLogAxis(l *Load) logAxis {
	least, most := time.Duration(math.MaxInt64), shortest
	for _, s := range l.Samples {
		least, most = min(least, max(s.Took, shortest)), max(most, s.Took)
	}
	if len(l.Samples) == 0 {
		least, most = time.Millisecond, time.Second
	}
	a := logAxis{stepDown(least.Seconds()), 0}
	for a.most = a.least; a.most < most.Seconds()*(1-1e-9) || a.most < a.least*4; {
		a.most = stepUp(a.most)
	}
	return a
}

func (a logAxis) part(d time.Duration) float64 {
	return math.Log(max(d, shortest).Seconds()/a.least) / math.Log(a.most/a.least)
}

// stepDown returns the greatest of 1, 2 or 5 times a power of ten that is not above x.
func stepDown(x float64) float64 {
	scale := math.Pow(10, math.Floor(math.Log10(x)+1e-9))
	for _, step := range []float64{5, 2} {
		if step*scale <= x*(1+1e-9) {
			return step * scale
		}
	}
	return scale
}

// stepUp returns the next one above.
func stepUp(x float64) float64 {
	scale := math.Pow(10, math.Floor(math.Log10(x)+1e-9))
	switch lead := math.Round(x / scale); lead {
	case 1:
		return 2 * scale
	case 2:
		return 5 * scale
	}
	return 10 * scale
}

// faultLooks group the faults by colour: blue ones are slow, orange ones take the answer away, purple ones the request,
// and green is one request too many.
var faultLooks = map[string]look{
	"":              {dot, "plain"},
	faultLatency:    {shapes[0], "blue"},
	faultJitter:     {shapes[1], "blue"},
	faultBandwidth:  {shapes[2], "blue"},
	faultReset:      {shapes[3], "orange"},
	faultLost:       {shapes[4], "orange"},
	faultCut:        {shapes[5], "orange"},
	faultHole:       {shapes[6], "orange"},
	faultRefused:    {shapes[7], "purple"},
	faultCutRequest: {shapes[8], "purple"},
	faultTwice:      {shapes[9], "green"},
}

func faultLook(fault string) look {
	if l, known := faultLooks[fault]; known {
		return l
	}
	return look{shapes[0], "green"}
}

// kindColor is the class of a kind of answers.
func kindColor(kind string) string {
	return fmt.Sprintf("k%d", slices.Index(meanings[:], kind)+1) // k0 for one that is not known
}

// latencyPlot shows how long attempts took over the time of the load, each as a mark that tells its fault.
func latencyPlot(l *Load, size format) template.HTML {
	f, axis := newFrame(size, l), newLogAxis(l)
	d := newDrawing(f.width, f.height, f.class, fmt.Sprintf(
		"Latency of the attempts over time, on a logarithmic scale. Half of the answers came within %s, 95 %% within %s, "+
			"99 %% within %s.",
		quantile(l.P50), quantile(l.P95), quantile(l.P99)))
	decades := math.Log10(axis.most / axis.least)
	for tick := axis.least; tick <= axis.most*(1+1e-9); tick = stepUp(tick) {
		y := f.y(axis.part(time.Duration(tick * float64(time.Second))))
		isDecade := math.Abs(math.Mod(math.Log10(tick)+100.5, 1)-0.5) < 1e-6
		d.line("grid", f.left, y, f.width-f.right, y)
		if isDecade || decades < 2.5 {
			d.label("end", f.left-7, y+4, span(time.Duration(math.Round(tick*1e9))))
		}
	}
	f.timeAxis(d, l)

	names, marks := f.marksOf(l, axis)
	for _, name := range names {
		look := faultLook(name)
		var path strings.Builder
		for _, m := range marks[name] {
			path.WriteString("M" + coordinate(m.x) + " " + coordinate(m.y) + look.path)
		}
		d.path(look.class(), path.String())
	}

	above := math.Inf(1) // where the label of the shorter one stands
	for _, q := range []struct {
		name string
		took time.Duration
	}{{"p50", l.P50}, {"p95", l.P95}, {"p99", l.P99}} {
		if q.took <= 0 {
			continue
		}
		y := f.y(axis.part(q.took))
		d.line("quantile", f.left, y, f.width-f.right, y)
		above = min(y+4, above-12)
		d.label("start", f.width-f.right+6, above, q.name)
	}
	return d.done()
}

type place struct{ x, y float64 }

// marksOf returns where the marks of each fault are, those without a fault first. Where there are too many it keeps one
// of those that are the nearest to each other, so that what stands alone always shows.
func (f *frame) marksOf(l *Load, axis logAxis) (names []string, marks map[string][]place) {
	for cell := 1.0; ; cell *= 1.5 {
		names, marks = nil, map[string][]place{}
		type spot struct {
			fault string
			x, y  int
		}
		taken := map[spot]bool{}
		for _, s := range l.Samples {
			p := place{f.x(s.At), f.y(axis.part(s.Took))}
			at := spot{s.Fault, int(p.x / cell), int(p.y / cell)}
			if taken[at] {
				continue
			}
			taken[at] = true
			if marks[s.Fault] == nil {
				names = append(names, s.Fault)
			}
			marks[s.Fault] = append(marks[s.Fault], p)
		}
		if len(taken) <= f.marks || cell > f.width {
			break
		}
	}
	slices.Sort(names)
	return names, marks
}

// answersPlot shows how many attempts a second ended how, over the time of the load.
func answersPlot(l *Load, size format) template.HTML {
	f := newFrame(size, l)
	kinds := countNames([]Load{*l}, (*Load).answers)
	bins := make([]map[string]int, f.bins)
	for _, s := range l.Samples {
		n := min(int(float64(s.At)/float64(f.until)*float64(f.bins)), f.bins-1)
		if bins[max(n, 0)] == nil {
			bins[max(n, 0)] = map[string]int{}
		}
		bins[max(n, 0)][s.Kind]++
		if !slices.Contains(kinds, s.Kind) {
			kinds = append(kinds, s.Kind)
		}
	}
	// A sample stands for as many attempts as were left out around it.
	width := f.until / time.Duration(f.bins)
	each := float64(max(l.Attempts, len(l.Samples))) / float64(max(len(l.Samples), 1)) / max(width.Seconds(), 1e-9)
	most := 0.0
	for _, bin := range bins {
		sum := 0
		for _, n := range bin {
			sum += n
		}
		most = max(most, float64(sum)*each)
	}
	most = max(most, 1)

	d := newDrawing(f.width, f.height*0.6, f.class, "Attempts a second by how they ended, over time.")
	f.height *= 0.6
	step := niceStep(most, 5)
	top := math.Ceil(most/step-1e-9) * step
	for n := 0; float64(n)*step <= top*(1+1e-9); n++ {
		y := f.y(float64(n) * step / top)
		d.line("grid", f.left, y, f.width-f.right, y)
		d.label("end", f.left-7, y+4, tickLabel(float64(n)*step, step))
	}
	for i, bin := range bins {
		from, height := time.Duration(i)*width, 0.0
		for _, kind := range kinds {
			n := bin[kind]
			if n == 0 {
				continue
			}
			rate := float64(n) * each
			bottom := f.y(height / top)
			height += rate
			d.rect(kindColor(kind), f.x(from)+0.5, f.y(height/top), max(f.x(from+width)-f.x(from)-1, 0.5), bottom-f.y(height/top),
				fmt.Sprintf("%s to %s: %s a second, %s", span(from), span(from+width), number(round(rate, 1)), kind))
		}
	}
	f.timeAxis(d, l)
	return d.done()
}
