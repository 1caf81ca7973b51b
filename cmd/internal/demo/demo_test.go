package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
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

// program is semel, built for the scenes that kill it.
var program string

func built() string {
	proof.Reads(proof.Code)
	return program
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "semel-demo-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "semel")
	build := exec.Command("go", "build", "-o", program, "github.com/semelhq/semel/cmd/semel")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build semel: %v\n%s", err, out)
		os.Exit(1)
	}
	status := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	os.Exit(status)
}

type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Broken fronts are what a client would reach if the gateway were broken in one way, or not there, with the scenes that
// are played before each.
var brokenFronts = []struct {
	name   string
	scenes []int
	front  func(gateway, service *url.URL) http.Handler
}{
	{"no guard", []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, func(_, service *url.URL) http.Handler {
		return altered(service, func(*http.Response) {})
	}},
	{"no marker", []int{1, 2, 4, 6, 7, 8, 10, 11, 12, 13}, func(gateway, _ *url.URL) http.Handler {
		return altered(gateway, func(res *http.Response) { res.Header.Del("Idempotent-Replayed") })
	}},
	{"everything is marked", []int{1, 8, 9, 12}, func(gateway, _ *url.URL) http.Handler {
		return altered(gateway, func(res *http.Response) { res.Header.Set("Idempotent-Replayed", "true") })
	}},
	{"other bytes in replays", []int{1, 2}, func(gateway, _ *url.URL) http.Handler {
		return altered(gateway, func(res *http.Response) {
			if res.Header.Get("Idempotent-Replayed") != "" {
				other(res)
			}
		})
	}},
	{"no Location in replays", []int{1, 2}, func(gateway, _ *url.URL) http.Handler {
		return altered(gateway, func(res *http.Response) {
			if res.Header.Get("Idempotent-Replayed") != "" {
				res.Header.Del("Location")
			}
		})
	}},
	{"no Retry-After", []int{3}, func(gateway, _ *url.URL) http.Handler {
		return altered(gateway, func(res *http.Response) { res.Header.Del("Retry-After") })
	}},
	{"refusals look like failures", []int{3}, func(gateway, _ *url.URL) http.Handler {
		return altered(gateway, func(res *http.Response) {
			if res.StatusCode >= 400 {
				res.StatusCode = 500
			}
		})
	}},
	{"never answers", []int{6}, func(_, _ *url.URL) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}},
	{"answers without paying", []int{1, 7}, func(_, _ *url.URL) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/payments/ch_1")
			w.WriteHeader(http.StatusCreated)
		})
	}},
	{"pays once more with a replay", []int{10, 11}, func(gateway, service *url.URL) http.Handler {
		return altered(gateway, func(res *http.Response) {
			if res.Header.Get("Idempotent-Replayed") != "" {
				payFor("order-10", "").via(service.String()).send(res.Request.Context())
			}
		})
	}},
	{"pays behind the guard's back", []int{1, 2, 9}, func(gateway, service *url.URL) http.Handler {
		good := altered(gateway, func(*http.Response) {})
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			if r.Method == http.MethodPost {
				receive(plainTransport.RoundTrip(must(http.NewRequest(http.MethodPost, service.String()+"/payments", bytes.NewReader(body)))))
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			good.ServeHTTP(w, r)
		})
	}},
}

func must(r *http.Request, err error) *http.Request {
	if err != nil {
		panic(err)
	}
	return r
}

func altered(to *url.URL, change func(*http.Response)) http.Handler {
	p := httputil.NewSingleHostReverseProxy(to)
	p.ModifyResponse = func(res *http.Response) error {
		change(res)
		return nil
	}
	p.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	return p
}

// other replaces an answer's body by one of the same length.
func other(res *http.Response) {
	body, err := io.ReadAll(res.Body)
	if err == nil {
		res.Body = io.NopCloser(strings.NewReader(strings.ToUpper(string(body))))
	}
}

// Every check of every scene fails with at least one of the broken fronts, so none of them is there for show.
func TestNoCheckOfTheDemoIsIdle(t *testing.T) {
	t.Parallel()
	good := &output{}
	rows, err := Config{Once: true, Out: good, Self: built()}.run(t.Context())
	if err == nil {
		err = failure(rows)
	}
	if err != nil {
		t.Fatalf("with the gateway as it is: %v\n%s", err, good)
	}
	checkPrinted(t, good.String())
	var (
		mu    sync.Mutex
		alarm = map[[2]int]bool{} // by scene and check
		all   sync.WaitGroup
		turns = make(chan struct{}, 3) // so that times stay what the scenes take them for
	)
	for _, b := range brokenFronts {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			out := &output{}
			rows, err := Config{Once: true, Out: out, Self: built(), Front: b.front, only: b.scenes}.run(t.Context())
			if err != nil {
				t.Errorf("%s: %v", b.name, err)
				return
			}
			defer os.RemoveAll(keptFolder(out.String())) //nolint:errcheck // a temporary folder
			if !errors.Is(failure(rows), ErrFailed) {
				t.Errorf("%s: all scenes came out right:\n%s", b.name, out)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range rows {
				for i, ok := range r.checks {
					if !ok {
						alarm[[2]int{r.number, i}] = true
					}
				}
			}
		})
	}
	all.Wait()
	for _, r := range rows {
		for i := range r.checks {
			// The last one of scene 7 looks past the gateway: it shows that the danger is real.
			if !alarm[[2]int{r.number, i}] && [2]int{r.number, i} != [2]int{7, 3} {
				t.Errorf("scene %d (%s): check %d held with every broken gateway", r.number, r.title, i+1)
			}
		}
	}
}

// keptFolder is where a failed demo has left what an operator would look at.
func keptFolder(out string) string {
	_, dir, _ := strings.Cut(out, "stay in ")
	return strings.TrimSpace(dir)
}

// checkPrinted checks what a demo has printed in which all came out right.
func checkPrinted(t *testing.T, out string) {
	t.Helper()
	for line := range strings.SplitSeq(out, "\n") {
		if n := utf8.RuneCountInString(line); n > columns || strings.TrimRight(line, " ") != line {
			t.Errorf("a line of %d columns, or with spaces at its end: %q", n, line)
		}
	}
	for _, want := range []string{"POST /payments", "Idempotency-Key: pay-order-1", "201 Created", "ledger: 1 charge for order-1", "✓", "charges"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo does not show %q", want)
		}
	}
	if strings.Contains(out, "✗") || strings.Contains(out, "\x1b") {
		t.Error("there is a failure, or colour in what is not a terminal")
	}
}

func TestColourIsForTerminals(t *testing.T) {
	t.Parallel()
	for _, color := range []bool{true, false} {
		var out bytes.Buffer
		s := screen{out: &out, color: color}
		s.table([]row{{number: 1, title: "a", ok: true}, {number: 2, title: "b"}})
		if strings.Contains(out.String(), "\x1b[32m✓") != color || strings.Contains(out.String(), "\x1b[31m✗") != color {
			t.Errorf("color %t: %q", color, out.String())
		}
	}
}

func TestTheDemoServesUntilItIsEnded(t *testing.T) {
	t.Parallel()
	// Whether it is this test or somebody else who has the port, the demo must find another one.
	if l, err := net.Listen("tcp", preferredPort); err == nil {
		defer l.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := &output{}
	ended := make(chan error, 1)
	go func() { ended <- Config{Out: out}.Run(ctx) }()
	if err := until(t.Context(), func() bool { return strings.Contains(out.String(), "/readyz") }); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	front := regexp.MustCompile(`curl -i (\S+)/payments`).FindStringSubmatch(out.String())
	ledgerPath := regexp.MustCompile(`cat (\S+ledger\.jsonl)`).FindStringSubmatch(out.String())
	ready := regexp.MustCompile(`curl (\S+/readyz)`).FindStringSubmatch(out.String())
	if front == nil || ledgerPath == nil || ready == nil {
		t.Fatalf("the demo does not say what to try:\n%s", out)
	}
	if strings.HasSuffix(front[1], ":8080") {
		t.Errorf("the gateway is at %s, which is taken", front[1])
	}
	r := payFor("mine", "my-first").via(front[1])
	one, two := r.send(ctx), r.send(ctx)
	if one.status != 201 || one.replayed() || two.status != 201 || !two.replayed() {
		t.Errorf("a first request of one's own is %s, its repeat %s", one.brief(), two.brief())
	}
	if content, err := os.ReadFile(ledgerPath[1]); err != nil || strings.Count(string(content), `"order":"mine"`) != 1 {
		t.Errorf("the ledger: %v\n%s", err, content)
	}
	if n := status(ctx, ready[1]); n != 200 {
		t.Errorf("%s is %d", ready[1], n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the demo ended with %v", err)
	}
	if _, err := os.Stat(filepath.Dir(ledgerPath[1])); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the demo left its folder behind: %v", err)
	}
}

func TestAnInterruptedDemoIsNoSuccess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Config{Once: true, Out: io.Discard}).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestTheLedgerIsWhatIsInTheFile(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, order := range []string{"a", "b", "a"} {
		if _, err := l.add(charge{Order: order, Amount: 1, Currency: "EUR"}); err != nil {
			t.Fatal(err)
		}
	}
	count := func(order string) int {
		charges, err := l.charges(order)
		if err != nil {
			t.Fatal(err)
		}
		return len(charges)
	}
	if count("a") != 2 || count("b") != 1 || count("c") != 0 || count("") != 3 {
		t.Errorf("a %d, b %d, c %d, all %d", count("a"), count("b"), count("c"), count(""))
	}
	// Somebody else's line counts too; a broken one is an error, not a charge less.
	appendTo(t, l.path, `{"order":"c"}`)
	if count("c") != 1 {
		t.Error("a line that somebody else wrote does not count")
	}
	appendTo(t, l.path, "{broken")
	if _, err := l.charges("a"); err == nil {
		t.Error("a broken line is no error")
	}
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l, err := openLedger(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func appendTo(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTheServiceRefusesWhatIsNoPayment(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	s, err := newService(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for body, want := range map[string]int{
		"":          400,
		`{"order":`: 400,
		`{"order":"a","amount":1,"currency":"EUR","takes":"soon"}`:       400,
		`{"order":"a","amount":1,"currency":"EUR","takes":"2h"}`:         400,
		`{"order":"a","amount":1,"currency":"EUR","takes":"-1s"}`:        400,
		`{"order":"a","amount":1,"currency":"EUR","answers_after":"2h"}`: 400,
		`{"order":"","amount":1,"currency":"EUR"}`:                       422,
		`{"order":"a","amount":0,"currency":"EUR"}`:                      422,
		`{"order":"a","amount":1}`:                                       422,
	} {
		if r := (request{to: s.url, path: "/payments", body: body}).send(ctx); r.status != want {
			t.Errorf("%s: status %d, want %d", body, r.status, want)
		}
	}
	if charges, err := l.charges(""); err != nil || len(charges) != 0 {
		t.Errorf("%d charges, %v", len(charges), err)
	}
}
