package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/verify"
)

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{cfg: Config{Once: true}, screen: screen{out: io.Discard}, dir: t.TempDir()}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Each variant is answered as it should be by the service itself, and charges as often as it says.
func TestTheServiceAnswersInSpecialWays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for path, want := range map[string]struct {
		statuses []int // 0: the connection breaks
		charges  int
		holds    func(reply) bool
	}{
		"/payments":          {[]int{201, 201}, 2, func(r reply) bool { return r.header.Get("Set-Cookie") != "" }},
		"/payments/declined": {[]int{402, 402}, 0, func(r reply) bool { return strings.Contains(r.body, "reference") }},
		"/payments/failing":  {[]int{500, 500}, 2, func(r reply) bool { return r.body != "" }},
		"/payments/limited":  {[]int{429, 201}, 1, func(r reply) bool { return r.status != 429 || r.retryAfter() == time.Second }},
		"/payments/dropped":  {[]int{0, 0}, 2, func(r reply) bool { return r.err != nil }},
		"/payments/large":    {[]int{201, 201}, 2, isLarge},
		"/payments/empty":    {[]int{204, 204}, 2, func(r reply) bool { return r.body == "" && charged(r) }},
		"/payments/binary":   {[]int{201, 201}, 2, isBinary},
		"/payments/stream":   {[]int{200, 200}, 2, isStream},
	} {
		r := payFor(path, "").via(s.service.url)
		r.path = path
		var bodies []string
		for _, status := range want.statuses {
			got := r.send(t.Context())
			if got.status != status || !want.holds(got) {
				t.Errorf("%s: %s %.80q %v", path, got.brief(), got.body, got.header)
			}
			bodies = append(bodies, got.body)
		}
		if bodies[0] == bodies[1] && path != "/payments/empty" && path != "/payments/dropped" && path != "/payments/failing" {
			t.Errorf("%s: two charges have one answer", path)
		}
		charges, err := s.ledger.charges(path)
		if err != nil || len(charges) != want.charges {
			t.Errorf("%s: %d charges, %v", path, len(charges), err)
		}
	}
}

// Behind the gateway each variant is asked for twice with one key, and happens once.
func TestTheGatewayRepeatsWhatIsAnsweredInSpecialWays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const unknown = 409
	for path, want := range map[string]struct {
		first, again int
		replayed     bool
		charges      int
	}{
		"/payments":          {201, 201, true, 1},
		"/payments/declined": {402, 402, true, 0},
		"/payments/failing":  {500, 500, true, 1},
		"/payments/limited":  {429, 201, false, 1},
		"/payments/dropped":  {unknown, unknown, false, 1},
		"/payments/large":    {201, 201, true, 1},
		"/payments/empty":    {204, 204, true, 1},
		"/payments/binary":   {201, 201, true, 1},
		"/payments/stream":   {200, 200, true, 1},
	} {
		r := payFor(path, "key-"+path).via(s.front)
		r.path = path
		first, again := r.send(t.Context()), r.send(t.Context())
		broke := first.err != nil || again.err != nil
		if broke || first.status != want.first || again.status != want.again || again.replayed() != want.replayed {
			t.Errorf("%s: first %s %.80q, again %s", path, first.brief(), first.body, again.brief())
		}
		if want.replayed && (again.body != first.body || again.header.Get("Location") != first.header.Get("Location")) {
			t.Errorf("%s: the first answer has %d bytes %.80q, the repeat %d bytes %.80q", path,
				len(first.body), first.body, len(again.body), again.body)
		}
		for _, name := range []string{"Set-Cookie", "X-Ratelimit-Remaining"} {
			if again.header.Get(name) != "" || path == "/payments" && first.header.Get(name) == "" {
				t.Errorf("%s: %s is %q at first, and then %q", path, name, first.header.Get(name), again.header.Get(name))
			}
		}
		if charges, err := s.ledger.charges(path); err != nil || len(charges) != want.charges {
			t.Errorf("%s: %d charges, %v", path, len(charges), err)
		}
	}
	// The count is the gateway's only read here: it must not be older than the charges.
	got := receive(http.Get(s.front + "/payments/count"))
	all, err := s.ledger.charges("")
	if want := fmt.Sprintf("{\"count\":%d}\n", len(all)); err != nil || got.body != want {
		t.Errorf("the count is %q, want %q, %v", got.body, want, err)
	}
}

func charged(r reply) bool { return strings.HasPrefix(r.header.Get("Location"), "/payments/ch_") }

func isStream(r reply) bool { return strings.Count(r.body, "\n\n") == len(streamed) && charged(r) }

func isLarge(r reply) bool {
	var v struct {
		ID    string
		Lines []string
	}
	return json.Unmarshal([]byte(r.body), &v) == nil && len(r.body) > 990_000 && len(r.body) < 1<<20 &&
		v.Lines[0] == v.ID+", line 1" && v.Lines[len(v.Lines)-1] == "the end"
}

func isBinary(r reply) bool {
	seen := map[byte]bool{}
	for _, b := range []byte(r.body) {
		seen[b] = true
	}
	return len(seen) == 256 && charged(r)
}

// A service tells of its steps one by one.
func TestTheServiceStreams(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	w := &eventWriter{header: http.Header{}}
	r, err := http.NewRequest(http.MethodPost, "/payments/stream", strings.NewReader(payFor("a", "").body))
	if err != nil {
		t.Fatal(err)
	}
	(&service{ledger: l}).handler().ServeHTTP(w, r)
	if len(w.flushed) != len(streamed) {
		t.Fatalf("%d parts: %q", len(w.flushed), w.flushed)
	}
	for i, part := range w.flushed {
		named := strings.Contains(part, `data: {"id":"ch_1"`) && strings.Contains(part, streamed[i])
		if !named || strings.Count(part, "\n\n") != 1 {
			t.Errorf("part %d is %q", i, part)
		}
	}
}

// An eventWriter keeps what was flushed together.
type eventWriter struct {
	header  http.Header
	pending strings.Builder
	flushed []string
}

func (w *eventWriter) Header() http.Header         { return w.header }
func (w *eventWriter) WriteHeader(int)             {}
func (w *eventWriter) Write(p []byte) (int, error) { return w.pending.Write(p) }
func (w *eventWriter) Flush() {
	w.flushed = append(w.flushed, w.pending.String())
	w.pending.Reset()
}

func TestALedgerGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(path, []byte(`{"charge":"ch_1","order":"a"}`+"\n"+`{"charge":"ch_2","or`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	c, err := l.add(charge{Order: "b"})
	if err != nil || c.ID != "ch_2" {
		t.Errorf("the next charge is %+v, %v", c, err)
	}
	if n, err := l.lines(); err != nil || n != 2 {
		t.Errorf("%d lines, %v", n, err)
	}
	if all, err := l.charges(""); err != nil || len(all) != 2 || all[1].Order != "b" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestTheScenariosOfTheDemoAreComplete(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"demo.yaml", "broken.yaml"} {
		proof.Reads("examples")
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "verify", name))
		if err != nil {
			t.Fatal(err)
		}
		s, err := verify.ReadScenario(text)
		if err == nil {
			err = s.Complete()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Target != "http://"+preferredPort || len(s.Variants) != 10 {
			t.Errorf("%s: target %s, %d variants", name, s.Target, len(s.Variants))
		}
	}
}
