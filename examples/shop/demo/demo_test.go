package demo

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/proof"
)

// program is the shop's command, built for what is killed.
var program string

func built() string {
	proof.Reads(proof.Code)
	return program
}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "shop-demo-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(folder, "shop")
	if out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the shop: %v\n%s", err, out)
		os.Exit(1)
	}
	status := m.Run()
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// An output is written and read at once.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestEachSceneComesOutRightAndWhatIsToBeTypedWorks(t *testing.T) {
	t.Parallel()
	var out output
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Config{Listen: "localhost:0", Out: &out, Self: built()}.Run(ctx) }()
	for !strings.Contains(out.String(), "The shop stays open") {
		select {
		case err := <-ended:
			t.Fatal(err, "\n", out.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	text := out.String()
	if !strings.Contains(text, fmt.Sprintf("%d of %d scenes came out right", len(scenes), len(scenes))) {
		t.Error(text)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if n := utf8.RuneCountInString(line); n > 100 && !strings.Contains(line, "token  ") && !strings.Contains(line, "curl ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	told(t, text)
	lines := regexp.MustCompile(`(?m)^   curl (.*\\\n)?.*$`).FindAllString(text, -1)
	if len(lines) != 3 {
		t.Fatalf("%d lines to type, want 3: %q", len(lines), lines)
	}
	for _, want := range []string{"", "Idempotent-Replayed: true"} {
		for _, line := range lines[:2] {
			if got := typed(t, line); !strings.Contains(got, "201 Created") || want != "" && !strings.Contains(got, want) {
				t.Errorf("%s\n%s", line, got)
			}
		}
	}
	if n := strings.Count(typed(t, lines[2]), `"amount":4900,"currency":"EUR","card":"tok_visa"`); n != 1 {
		t.Errorf("the card was charged %d times", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

var (
	//go:embed testdata/scene.txt
	shown string
	//go:embed testdata/compare.svg
	compared []byte
)

// told checks that the demo says what README shows, in which an ellipsis stands for what differs from run to run. A
// test in internal/docs compares README with the file.
func told(t *testing.T, text string) {
	t.Helper()
	pattern := strings.ReplaceAll(regexp.QuoteMeta(shown), "…", "[a-z0-9]+")
	if !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("README shows\n%s\nthe demo says\n%s", shown, text)
	}
}

func typed(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func TestAClaimThatIsFalseIsTold(t *testing.T) {
	t.Parallel()
	var out output
	err := Config{Once: true, Out: &out, Self: "/bin/false", only: []int{2, 3}}.Run(t.Context())
	if !errors.Is(err, ErrFalse) || !strings.Contains(err.Error(), "3 (A process killed") || strings.Contains(err.Error(), "2 (") || !strings.Contains(out.String(), "✗") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestFaultsDoHarmWithoutSemelAndNoneWithIt(t *testing.T) {
	t.Parallel()
	var out output
	path := filepath.Join(t.TempDir(), "compare.svg")
	if err := (Comparison{Seed: 7, SVG: path, Out: &out, Self: built()}).Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkPicture(t, path, text)
}

// A test in internal/docs compares the picture in docs with the file.
func TestThePictureInTheDocsIsWhatTheCommandMakes(t *testing.T) {
	t.Parallel()
	checkPicture(t, "testdata/compare.svg", compared)
}

// checkPicture reads the figures in a picture. Their amounts differ from run to run.
func checkPicture(t *testing.T, path string, text []byte) {
	t.Helper()
	var f Figures
	data := regexp.MustCompile(`<metadata>(.*)</metadata>`).FindSubmatch(text)
	if data == nil {
		t.Fatalf("%s has no figures", path)
	}
	if err := json.Unmarshal(data[1], &f); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.picture(), text) {
		t.Errorf("%s is not what its figures make: run shop demo --compare --svg %s", path, path)
	}
	if f.With.wrong() != 0 {
		t.Errorf("with semel: %+v", f.With)
	}
	w := f.Without
	for _, n := range append(w.Duplicates[:], w.LostOrders, w.DoubledMessages, w.LostUpdates) {
		if n == 0 {
			t.Errorf("without semel a fault did no harm: %+v", w)
		}
	}
	if w.P95 <= 0 || f.With.P95 <= 0 {
		t.Errorf("p95: %v and %v", w.P95, f.With.P95)
	}
}
