package verify

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A stretch is a part of a key's time: a call from when it was sent until its answer came, or a moment that has no end.
type stretch struct {
	label    string
	from, to time.Duration
	began    string // how
	what     string // how it ended
	kind     string // of its answer, if it has a known one
	lane     int
	right    float64 // where its drawing ends
}

// stretches pairs the moments of a key that begin with the same words up to a colon, such as "call 3:".
func stretches(events []Moment) (all []stretch) {
	began := map[string]int{}
	for _, m := range events {
		label, what, named := strings.Cut(m.What, ": ")
		i, paired := began[label]
		if !named || !paired {
			s := stretch{from: m.At, to: m.At, began: m.What}
			if named {
				s.label = cutTo(visible(label), 20)
				began[label] = len(all)
			}
			all = append(all, s)
			continue
		}
		delete(began, label)
		s := &all[i]
		s.to, s.what = m.At, what
		for _, kind := range meanings {
			if strings.HasPrefix(what, kind+", ") {
				s.kind = kind
				s.label += ", " + kind
			}
		}
	}
	return all
}

// labelWidth is how much room the label takes in a drawing, about.
func (s *stretch) labelWidth() float64 { return 6.6 * float64(utf8.RuneCountInString(s.label)) }

// timeline shows when the calls of a key were under way: one bar for each, above each other where they overlap.
func timeline(k *FailedKey, size format) template.HTML {
	all := stretches(k.Events)
	if len(all) == 0 {
		return ""
	}
	first, last := all[0].from, all[0].to
	for _, s := range all {
		first, last = min(first, s.from), max(last, s.to)
	}
	const laneHeight, gap, edge = 17.0, 5.0, 2.0
	reserve := 0.0
	for i := range all {
		reserve = max(reserve, gap+all[i].labelWidth())
	}
	room := size.width - 2*edge - reserve // the last label stands behind the end
	x := func(at time.Duration) float64 {
		return edge + room*float64(at-first)/float64(max(last-first, 1))
	}
	var ends []float64 // of the lanes
	for i := range all {
		s := &all[i]
		s.right = max(x(s.to), x(s.from)+3)
		end := s.right + gap + s.labelWidth() + gap
		s.lane = slices.IndexFunc(ends, func(taken float64) bool { return taken <= x(s.from) })
		if s.lane < 0 {
			s.lane = len(ends)
			ends = append(ends, 0)
		}
		ends[s.lane] = end
	}

	bottom := laneHeight*float64(len(ends)) + 4
	d := newDrawing(size.width, bottom+20, size.class, fmt.Sprintf(
		"When the calls of this key were under way, from %s to %s.", since(first), since(last)))
	for i := range all {
		s := &all[i]
		y := laneHeight * float64(s.lane)
		title := since(s.from) + " " + s.began
		if s.what != "" {
			title += "; " + since(s.to) + " " + s.what
		}
		d.rect(kindColor(s.kind), x(s.from), y+3, s.right-x(s.from), 11, title)
		d.label("start", s.right+gap, y+13, s.label)
	}
	d.line("axis", edge, bottom, edge+room, bottom)
	d.line("tick", edge, bottom, edge, bottom+4)
	d.line("tick", edge+room, bottom, edge+room, bottom+4)
	d.label("start", edge, bottom+16, since(first))
	d.label("end", edge+room, bottom+16, since(last))
	return d.done()
}
