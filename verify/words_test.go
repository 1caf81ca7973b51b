package verify

import (
	"math"
	"testing"
	"time"
)

func TestTextsOfOthersObeyNobody(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain, \"quoted\" 'text' \\ é 😀":       "plain, \"quoted\" 'text' \\ é 😀",
		"a\tb\r\nc":                             `a\tb\r\nc`,
		"\x1b[31mred\x1b]0;title\a":             `\x1b[31mred\x1b]0;title\a`,
		"\u202eright to left\u2066\u200b\ufeff": `\u202eright to left\u2066\u200b\ufeff`,
		"\x00\x7f\u0085\u2028\ufffe":            `\x00\x7f\u0085\u2028\ufffe`,
		"cut \xe2\x82":                          `cut \xe2\x82`,
		"":                                      "",
	} {
		if got := visible(text); got != want {
			t.Errorf("visible(%q) = %q, want %q", text, got, want)
		}
		if again := visible(visible(text)); again != want {
			t.Errorf("visible text %q becomes %q", want, again)
		}
	}
}

func TestTimesAreToldInWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                                        "0 ms",
		1500 * time.Nanosecond:                   "0.0015 ms",
		90 * time.Microsecond:                    "0.09 ms",
		4256 * time.Microsecond:                  "4.26 ms",
		12345 * time.Microsecond:                 "12 ms",
		999*time.Millisecond + 600_000:           "1 s",
		2345 * time.Millisecond:                  "2.35 s",
		12345 * time.Millisecond:                 "12.3 s",
		59960 * time.Millisecond:                 "1 m",
		time.Minute:                              "1 m",
		2*time.Minute + 11*time.Second + 400_000: "2 m 11 s",
		-2 * time.Second:                         "-2 s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
	if got := since(1234567 * time.Microsecond); got != "+1.235 s" {
		t.Errorf("since: %q", got)
	}
}

// Nothing but all is 100 %, and nothing but none is 0 %.
func TestPartsAreToldInWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		part, whole int
		want        string
	}{
		{0, 7, "0 %"},
		{7, 7, "100 %"},
		{1, 3, "33.33 %"},
		{1, 1_000_000, "0.0001 %"},
		{999_999, 1_000_000, "99.9999 %"},
		{3, 2, "150 %"},
		{1, math.MaxInt, "0 %"}, // beyond what anybody counts
		{0, 0, "–"},
		{5, 0, "–"},
	} {
		if got := percent(tt.part, tt.whole); got != tt.want {
			t.Errorf("percent(%d, %d) = %q, want %q", tt.part, tt.whole, got, tt.want)
		}
	}
	for x, want := range map[float64]string{
		0: "0", 1: "1", 0.9975: "0.9975", 61.25: "61.25", 250: "250", 1e6: "1000000", 0.00012: "0.00012", 1.0 / 3: "0.3333",
		math.Inf(1): "–",
	} {
		if got := number(x); got != want {
			t.Errorf("number(%v) = %q, want %q", x, got, want)
		}
	}
	if got := number(math.NaN()); got != "–" {
		t.Errorf("number(NaN) = %q", got)
	}
}

func TestGatesAreToldInWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		gate       Gate
		limit, got string
	}{
		{Gate{Name: "--min-success", Bound: 0.999, Got: 0.9975}, "at least 0.999", "0.9975"},
		{Gate{Name: "--max-p99", Bound: 250, Got: 61.25, Unit: "ms", Open: true}, "at most 250 ms", "61.25 ms"},
		{Gate{Name: "--max-p99", Bound: 250, Got: 0, Unit: "ms"}, "at most 250 ms", "not measured"},
		{Gate{Name: "--max-duplicates", Bound: 0, Got: -1}, "at most 0", "not measured"},
		{Gate{Name: "--other", Bound: 3, Got: 2}, "3", "2"},
	} {
		if limit, got := tt.gate.limit(), tt.gate.got(); limit != tt.limit || got != tt.got {
			t.Errorf("%+v: %q, %q, want %q, %q", tt.gate, limit, got, tt.limit, tt.got)
		}
	}
}
