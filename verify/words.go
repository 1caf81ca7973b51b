package verify

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// visible returns a text with its control characters, line breaks and whatever else a terminal, a browser or an XML
// parser would obey or drop spelled out, as in a Go string. Reports quote what targets have sent, and nobody vouches
// for that.
func visible(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		text = text[size:]
	}
	return b.String()
}

// span is how long something took, in the unit that suits it.
func span(d time.Duration) string {
	const us, ms = time.Microsecond, time.Millisecond
	switch abs := d.Abs(); {
	case abs < 100*us:
		return number(float64(d.Round(us/10))/1e6) + " ms"
	case abs < 10*ms-5*us:
		return number(float64(d.Round(10*us))/1e6) + " ms"
	case abs < time.Second-ms/2:
		return number(float64(d.Round(ms))/1e6) + " ms"
	case abs < 10*time.Second-5*ms:
		return number(d.Round(10*ms).Seconds()) + " s"
	case abs < time.Minute-50*ms:
		return number(d.Round(100*ms).Seconds()) + " s"
	}
	d = d.Round(time.Second)
	text := fmt.Sprintf("%d m", d/time.Minute)
	if s := d % time.Minute / time.Second; s != 0 {
		text += fmt.Sprintf(" %d s", s.Abs())
	}
	return text
}

// since is a moment, counted from a beginning.
func since(d time.Duration) string { return fmt.Sprintf("+%.3f s", d.Seconds()) }

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

// number is a figure with at most four decimals, more if it is too small for those.
func number(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "–"
	case x != 0 && math.Abs(x) < 0.001:
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
	return strconv.FormatFloat(round(x, 4), 'f', -1, 64)
}

// percent is a part of a whole, as exact as it has to be for only none of it to be 0 % and only all of it to be 100 %.
// Without a whole there is no part.
func percent(part, whole int) string {
	if whole <= 0 {
		return "–"
	}
	x := 100 * float64(part) / float64(whole)
	for digits := 2; ; digits++ {
		if got := round(x, digits); part == 0 || part == whole || got != 0 && got != 100 || digits == 12 {
			return strconv.FormatFloat(got, 'f', -1, 64) + " %"
		}
	}
}

// cutTo shortens a text to so many characters.
func cutTo(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// plural counts things, whose plural ends in s.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func (l *Load) title() string {
	if l.Faults == 0 {
		return "without faults"
	}
	return "with faults (" + number(100*l.Faults) + " %)"
}

// title names the key, if there is one to blame, and says what is wrong.
func (k *FailedKey) title() string {
	if k.Key == "" {
		return k.What
	}
	return k.Key + ": " + k.What
}

// limit is the gate's bound for people, such as "at most 250 ms".
func (g *Gate) limit() string {
	side := ""
	switch {
	case strings.HasPrefix(g.Name, "--max-"):
		side = "at most "
	case strings.HasPrefix(g.Name, "--min-"):
		side = "at least "
	}
	return side + g.measure(g.Bound)
}

// got is what was measured. A gate that is closed although the figure is within its bound is closed for want of a
// figure.
func (g *Gate) got() string {
	within := strings.HasPrefix(g.Name, "--max-") && g.Got <= g.Bound || strings.HasPrefix(g.Name, "--min-") && g.Got >= g.Bound
	if !g.Open && within {
		return "not measured"
	}
	return g.measure(g.Got)
}

func (g *Gate) measure(x float64) string {
	if g.Unit == "" {
		return number(x)
	}
	return number(x) + " " + visible(g.Unit)
}
