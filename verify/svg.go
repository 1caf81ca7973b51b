package verify

import (
	"fmt"
	"html"
	"html/template"
	"strconv"
	"strings"
)

// A drawing is a picture in SVG, as a part of an HTML page. Its looks are classes of the page's style sheet: the page's
// policy allows no style attributes. All texts are escaped here.
type drawing struct{ b strings.Builder }

// newDrawing begins a picture of a size, which the page may scale. The title is what those get who can't see it.
func newDrawing(width, height float64, class, title string) *drawing {
	d := &drawing{}
	fmt.Fprintf(&d.b, `<svg class="%s" viewBox="0 0 %s %s" role="img"><title>%s</title>`,
		class, coordinate(width), coordinate(height), escaped(title))
	return d
}

// done ends the picture and returns it.
func (d *drawing) done() template.HTML {
	return template.HTML(d.b.String() + "</svg>") //nolint:gosec // every text in it was escaped
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.path(class, fmt.Sprintf("M%s %sL%s %s", coordinate(x1), coordinate(y1), coordinate(x2), coordinate(y2)))
}

func (d *drawing) path(class, data string) {
	fmt.Fprintf(&d.b, `<path class="%s" d="%s"/>`, class, data)
}

// rect draws a bar, which says a title to those who point at it.
func (d *drawing) rect(class string, x, y, width, height float64, title string) {
	fmt.Fprintf(&d.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`,
		class, coordinate(x), coordinate(y), coordinate(width), coordinate(height), escaped(title))
}

// label writes a text from x on, or up to it with the anchor "end", or around it with "middle".
func (d *drawing) label(anchor string, x, y float64, what string) {
	fmt.Fprintf(&d.b, `<text class="%s" x="%s" y="%s">%s</text>`, anchor, coordinate(x), coordinate(y), escaped(what))
}

func escaped(s string) string { return html.EscapeString(visible(s)) }

func coordinate(x float64) string { return strconv.FormatFloat(round(x, 1), 'f', -1, 64) }

// A shape is a mark around a place, as a path from there.
type shape struct {
	class string // solid ones are filled, hollow ones are drawn
	path  string // relative moves
}

// shapes tell marks apart for those who can't tell their colours apart.
var shapes = [...]shape{
	{"solid", "m0-4.2 4.4 7.6h-8.8z"},
	{"solid", "m0 4.2 4.4-7.6h-8.8z"},
	{"solid", "m0-4.8 4.3 4.8-4.3 4.8-4.3-4.8z"},
	{"hollow", "m-4 0h8m-4-4v8"},
	{"hollow", "m-3.2-3.2 6.4 6.4m0-6.4-6.4 6.4"},
	{"hollow", "m-3.2-3.2h6.4v6.4h-6.4z"},
	{"hollow", "m-3.8 0a3.8 3.8 0 1 0 7.6 0a3.8 3.8 0 1 0-7.6 0"},
	{"solid", "m-3.3-3.3h6.6v6.6h-6.6z"},
	{"hollow", "m0-4.6 4.2 4.6-4.2 4.6-4.2-4.6z"},
	{"solid", "m0-5.2 1.4 3.4 3.7.3-2.8 2.4.9 3.6-3.2-1.9-3.2 1.9.9-3.6-2.8-2.4 3.7-.3z"},
}

// dot is the mark of what nothing was done to.
var dot = shape{"solid", "m-1.7 0a1.7 1.7 0 1 0 3.4 0a1.7 1.7 0 1 0-3.4 0"}

// A look is how a thing is shown all over a page.
type look struct {
	shape
	color string // a class
}

func (l look) class() string { return l.shape.class + " " + l.color }

// swatch is the mark for a legend, where a dot would be hard to see.
func (l look) swatch() template.HTML {
	if l.shape == dot {
		l.path = "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0"
	}
	return template.HTML(fmt.Sprintf( //nolint:gosec // nothing in it comes from elsewhere
		`<svg class="swatch" viewBox="-7 -7 14 14" aria-hidden="true"><path class="%s" d="M0 0%s"/></svg>`, l.class(), l.path))
}
