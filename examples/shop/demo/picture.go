package demo

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The picture's measures, in pixels.
const (
	pictureWidth = 800
	labelsEnd    = 316 // where bars begin
	barsEnd      = 690
	rowHeight    = 62
	rowsBegin    = 118
)

// pictureStyle has colours for light and dark screens.
const pictureStyle = `
	svg { color-scheme: light dark }
	text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2328 }
	.page { fill: #ffffff; stroke: #d1d9e0 }
	.title { font-size: 21px; font-weight: 650 }
	.what { font-size: 15px; font-weight: 600 }
	.why, .foot, .key { font-size: 12.5px; fill: #59636e }
	.value { font-size: 15px; font-weight: 650; font-variant-numeric: tabular-nums }
	.line { stroke: #d1d9e0 }
	.without { fill: #cf222e }
	.with { fill: #1a7f37 }
	@media (prefers-color-scheme: dark) {
		text { fill: #f0f6fc }
		.page { fill: #0d1117; stroke: #3d444d }
		.why, .foot, .key { fill: #9198a1 }
		.line { stroke: #3d444d }
		.without { fill: #f85149 }
		.with { fill: #3fb950 }
	}
`

// A pictureRow is one measure. Its bars are as long as its numbers, beside what could have been hit.
type pictureRow struct {
	what, why         string
	without, with, of int64
	unit              string
}

func (f Figures) rows() []pictureRow {
	a, b := f.Without, f.With
	paid := payments + kills + proxied
	return []pictureRow{
		{"Duplicate charges", fmt.Sprintf("of %d payments: network %d, kill %d, proxy %d", paid, a.Duplicates[0], a.Duplicates[1], a.Duplicates[2]), int64(a.charges()), int64(b.charges()), int64(paid), ""},
		{"Lost orders", fmt.Sprintf("of %d payments whose process was killed", kills), int64(a.LostOrders), int64(b.LostOrders), kills, ""},
		{"Doubled messages", fmt.Sprintf("of %d that were delivered twice", doubled), int64(a.DoubledMessages), int64(b.DoubledMessages), doubled, ""},
		{"Lost updates", fmt.Sprintf("of %d orders with two editors", edited), int64(a.LostUpdates), int64(b.LostUpdates), edited, ""},
		{"p95 of a payment", "over the flaky network, with its repeats", a.P95.Milliseconds(), b.P95.Milliseconds(), 0, " ms"},
	}
}

// picture returns the figures as SVG, with texts as texts. It has the figures in it, as JSON.
func (f Figures) picture() []byte {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	rows := f.rows()
	height := rowsBegin + rowHeight*len(rows) + 40
	data, err := json.Marshal(f)
	if err != nil {
		panic(err) // they are numbers
	}
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title about">`, pictureWidth, height, pictureWidth, height)
	p(`<title id="title">The same faults, without and with semel</title>`)
	p(`<desc id="about">`)
	for _, r := range rows {
		p(`%s: %d%s without, %d%s with semel.`, r.what, r.without, r.unit, r.with, r.unit)
	}
	p(`</desc>`)
	p(`<metadata>%s</metadata>`, data)
	p(`<style>%s</style>`, pictureStyle)
	p(`<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="10"/>`, pictureWidth-1, height-1)
	p(`<text class="title" x="28" y="44">The same faults, without and with semel</text>`)
	p(`<rect class="without" x="28" y="66" width="12" height="12" rx="2"/><text class="key" x="47" y="76">without: a usual shop, whose clients try again</text>`)
	p(`<rect class="with" x="%d" y="66" width="12" height="12" rx="2"/><text class="key" x="%d" y="76">with semel</text>`, labelsEnd+50, labelsEnd+69)
	for i, r := range rows {
		y := rowsBegin + i*rowHeight
		p(`<line class="line" x1="28" x2="%d" y1="%d" y2="%d"/>`, pictureWidth-28, y-15, y-15)
		p(`<text class="what" x="28" y="%d">%s</text><text class="why" x="28" y="%d">%s</text>`, y+12, r.what, y+30, r.why)
		most := max(r.without, r.with, r.of, 1)
		for j, bar := range []struct {
			class string
			n     int64
		}{{"without", r.without}, {"with", r.with}} {
			width := max(2, (barsEnd-labelsEnd)*bar.n/most)
			p(`<rect class="%s" x="%d" y="%d" width="%d" height="14" rx="2"/>`, bar.class, labelsEnd, y+j*20, width)
			p(`<text class="value" x="%d" y="%d">%d%s</text>`, int64(labelsEnd)+width+9, y+12+j*20, bar.n, r.unit)
		}
	}
	p(`<text class="foot" x="28" y="%d">go run ./examples/shop demo --compare --seed %d</text>`, height-20, f.Seed)
	p(`</svg>`)
	return []byte(b.String())
}
