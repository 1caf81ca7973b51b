package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The picture's measures, in pixels.
const (
	pictureWidth = 860
	barsBegin    = 28
	barsEnd      = 740
	barsTop      = 112
	barHeight    = 40
)

// pictureStyle has colours for light and dark screens.
const pictureStyle = `
	svg { color-scheme: light dark }
	text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2328 }
	.page { fill: #ffffff; stroke: #d1d9e0 }
	.title { font-size: 21px; font-weight: 650 }
	.what { font-size: 13px; stroke: #ffffff; stroke-width: 4px; paint-order: stroke }
	.foot, .key { font-size: 12.5px; fill: #59636e }
	.value { font-size: 13px; font-weight: 650; font-variant-numeric: tabular-nums }
	.line { stroke: #d1d9e0 }
	.even { stroke: #59636e }
	.goal { stroke: #1f2328; stroke-width: 2 }
	.reached { fill: #1a7f37 }
	.missed { fill: #bf8700 }
	.shown { fill: #0969da }
	@media (prefers-color-scheme: dark) {
		text { fill: #f0f6fc }
		.page { fill: #0d1117; stroke: #3d444d }
		.what { stroke: #0d1117 }
		.foot, .key { fill: #9198a1 }
		.line { stroke: #3d444d }
		.even { stroke: #9198a1 }
		.goal { stroke: #f0f6fc }
		.reached { fill: #3fb950 }
		.missed { fill: #d29922 }
		.shown { fill: #4493f8 }
	}
`

// A bar is a row's ratio as a speed: that of semel as a share of the other's.
type bar struct {
	row
	speed float64
	goal  float64 // 0 if there is none
}

// bars are the rows that have a ratio.
func (r *report) bars() (all []bar) {
	for _, row := range r.rows {
		ratio, ok := factor(strings.TrimSuffix(row.ratio, doubtful))
		if !ok {
			continue
		}
		b := bar{row: row, speed: ratio}
		sign, goal, _ := strings.Cut(row.reach, " ")
		if g, ok := factor(goal); ok {
			b.goal = g
		}
		if sign == "≤" { // it is a cost
			b.speed = 1 / b.speed
			if b.goal > 0 {
				b.goal = 1 / b.goal
			}
		}
		all = append(all, b)
	}
	return all
}

// factor reads a number with the sign "×" behind it, above 0.
func factor(text string) (float64, bool) {
	digits, ok := strings.CutSuffix(text, "×")
	v, err := strconv.ParseFloat(digits, 64)
	return v, ok && err == nil && v > 0 && !math.IsInf(v, 1)
}

// picture shows the ratios as SVG, with texts as texts. Twice as fast is as far to the right as half as fast is to the
// left.
func (r *report) picture() []byte {
	all := r.bars()
	least, most := 0.5, 2.0
	for _, b := range all {
		least, most = min(least, b.speed), max(most, b.speed, b.goal)
		if b.goal > 0 {
			least = min(least, b.goal)
		}
	}
	least, most = math.Floor(math.Log2(least)), math.Ceil(math.Log2(most))
	at := func(speed float64) float64 {
		return barsBegin + (barsEnd-barsBegin)*(math.Log2(speed)-least)/(most-least)
	}
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	bottom := barsTop + barHeight*len(all)
	height := bottom + 44
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title">`, pictureWidth, height, pictureWidth, height)
	p(`<title id="title">How fast semel is beside its floors and its peers</title>`)
	p(`<style>%s</style>`, pictureStyle)
	p(`<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="10"/>`, pictureWidth-1, height-1)
	p(`<text class="title" x="28" y="42">How fast semel is beside its floors and its peers</text>`)
	x := 28
	for _, key := range []struct {
		class, text string
		width       int
	}{{"reached", "goal reached", 120}, {"missed", "goal missed", 116}, {"shown", "no goal", 90}} {
		p(`<rect class="%s" x="%d" y="60" width="12" height="12" rx="2"/><text class="key" x="%d" y="70">%s</text>`, key.class, x, x+18, key.text)
		x += key.width
	}
	p(`<line class="goal" x1="%d" x2="%d" y1="59" y2="73"/><text class="key" x="%d" y="70">goal</text>`, x+6, x+6, x+14)
	for power := int(least); power <= int(most); power++ {
		class, x := "line", at(math.Exp2(float64(power)))
		if power == 0 {
			class = "even"
		}
		p(`<line class="%s" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, class, x, x, barsTop-12, bottom)
		p(`<text class="key" x="%.1f" y="%d" text-anchor="middle">%s×</text>`, x, barsTop-18, strconv.FormatFloat(math.Exp2(float64(power)), 'g', 3, 64))
	}
	for i, bar := range all {
		y, class := barsTop+barHeight*i, "shown"
		if bar.goal > 0 && bar.speed >= bar.goal {
			class = "reached"
		} else if bar.goal > 0 {
			class = "missed"
		}
		from, to := at(min(1, bar.speed)), at(max(1, bar.speed))
		p(`<text class="what" x="%d" y="%d">%s</text>`, barsBegin, y+13, escaped(shortened(bar.name+" "+bar.what)))
		p(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="11" rx="2"/>`, class, from, y+19, max(1, to-from))
		if bar.goal > 0 {
			p(`<line class="goal" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at(bar.goal), at(bar.goal), y+16, y+33)
		}
		p(`<text class="value" x="%d" y="%d">%.2f×%s</text>`, barsEnd+20, y+29, bar.speed, strings.TrimPrefix(bar.ratio, strings.TrimSuffix(bar.ratio, doubtful)))
	}
	p(`<text class="foot" x="28" y="%d">%s</text>`, height-18, escaped(r.headline()))
	p(`</svg>`)
	return []byte(b.String())
}

// shortened cuts what would be wider than the picture.
func shortened(text string) string {
	const most = 110
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

func escaped(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text)) //nolint:errcheck // in memory
	return b.String()
}
