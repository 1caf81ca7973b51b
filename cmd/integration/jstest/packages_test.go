package jstest

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/semelhq/semel/internal/npm"
	"github.com/semelhq/semel/internal/proof"
)

//go:embed testdata
var testdata embed.FS

// A project is a folder with what npm packs of the client, installed beside the packages that it is tried with.
type project struct{ dir string }

func newProject(t *testing.T) project {
	t.Helper()
	p := project{t.TempDir()}
	if err := npm.Install(testdata, "testdata/packages", p.dir, "npm_config_ignore_scripts=true"); err != nil {
		t.Fatal(err)
	}
	proof.Reads("js")
	source := filepath.Join(p.dir, "client")
	if err := os.CopyFS(source, os.DirFS(client)); err != nil {
		t.Fatal(err)
	}
	p.run(t, "client", "npm", "pack", "--loglevel=error")
	packed, err := filepath.Glob(filepath.Join(source, "*.tgz"))
	if err != nil || len(packed) != 1 {
		t.Fatalf("npm pack has made %q (%v)", packed, err)
	}
	p.run(t, ".", "npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error", packed[0])
	return p
}

// run runs a program in a folder of the project, which finds the programs of the packages first, and returns what it
// says.
func (p project) run(t *testing.T, in, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	bin := filepath.Join(p.dir, "node_modules", ".bin")
	if path := filepath.Join(bin, name); exists(path) {
		name = path
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(p.dir, in)
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestTheClientFitsIntoOthersProjects(t *testing.T) {
	t.Parallel()
	p := newProject(t)

	t.Run("an ES module, with others' fetch and clients", func(t *testing.T) {
		got := strings.Fields(strings.ReplaceAll(p.run(t, "esm", "node", "main.js"), "a ", "a-"))
		if want := "fetch a-Request node-fetch undici ky openapi-fetch axios a-Node server"; strings.Join(got, " ") != want {
			t.Errorf("says %q, want %q", got, want)
		}
	})
	t.Run("CommonJS", func(t *testing.T) {
		if got := p.run(t, "cjs", "node", "main.js"); strings.TrimSpace(got) != "sent once" {
			t.Errorf("says %q", got)
		}
	})
	t.Run("TypeScript", func(t *testing.T) {
		p.run(t, "types", "tsc", "-p", "node16.json")
		p.run(t, "types", "tsc", "-p", "bundler.json")
		if proof.Long() {
			p.run(t, "client", "attw", "--pack", ".", "--format", "table-flipped")
		}
	})
	t.Run("esbuild and vite", func(t *testing.T) {
		p.run(t, "esm", "vite", "build", "--logLevel=error", "--outDir", "vite", "--emptyOutDir", "--config", "vite.config.js")
		if !exists(filepath.Join(p.dir, "esm", "vite", "one.js")) {
			t.Error("vite has built nothing")
		}
		for name, limit := range map[string]int{"all.js": 8000, "one.js": 4000} {
			p.run(t, "esm", "esbuild", name, "--bundle", "--minify", "--format=esm", "--log-level=warning", "--outfile=small/"+name)
			text, err := os.ReadFile(filepath.Join(p.dir, "esm", "small", name))
			if err != nil {
				t.Fatal(err)
			}
			var packed bytes.Buffer
			z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := z.Write(text); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			if packed.Len() > limit {
				t.Errorf("%s: %d bytes packed, want at most %d", name, packed.Len(), limit)
			}
			t.Logf("%s: %d bytes, %d packed", name, len(text), packed.Len())
		}
	})
	s, b := openShop(t), browser(t)
	s.serve(t, "/packages/", p.dir)
	paid := func(t *testing.T, page *page) {
		t.Helper()
		page.do(poll(`document.getElementById("state")?.textContent === "paid"`))
		if n := s.charges(page.order); n != 1 {
			t.Errorf("%d charges, want 1", n)
		}
	}
	t.Run("a React component that is mounted twice", func(t *testing.T) {
		p.run(t, "react", "esbuild", "checkout.jsx", "--bundle", "--format=esm", "--log-level=warning", "--outfile=checkout.js",
			`--define:process.env.NODE_ENV="development"`) // where StrictMode mounts twice
		arrived, release := s.hold(t, "strict")
		page := openAt(t, b, s, "/packages/react/checkout.html?order=strict", "strict")
		await(t, arrived, "the payment")
		release()
		paid(t, page)
		if mounts, err := chromedp.Run(page.ctx, chromedp.Evaluate[int]("mounts")); mounts != 2 || err != nil {
			t.Errorf("mounted %d times, %v, want twice", mounts, err)
		}
	})
	t.Run("a Vue component that is clicked twice", func(t *testing.T) {
		p.run(t, "vue", "esbuild", "main.js", "--bundle", "--format=esm", "--log-level=warning", "--outfile=checkout.js",
			`--define:process.env.NODE_ENV="production"`, "--define:__VUE_OPTIONS_API__=false", "--define:__VUE_PROD_DEVTOOLS__=false",
			"--define:__VUE_PROD_HYDRATION_MISMATCH_DETAILS__=false")
		arrived, release := s.hold(t, "vue")
		page := openAt(t, b, s, "/packages/vue/checkout.html?order=vue", "vue")
		page.do(poll(`document.getElementById("state")?.textContent === "ready"`))
		page.do(chromedp.Click("#pay"), chromedp.Click("#pay"))
		await(t, arrived, "the payment")
		release()
		paid(t, page)
	})
	t.Run("a service worker for pages that know nothing of keys", func(t *testing.T) {
		p.run(t, "worker", "esbuild", "main.js", "--bundle", "--log-level=warning", "--outfile=worker.js")
		arrived, release := s.hold(t, "worker")
		page := openAt(t, b, s, "/packages/worker/checkout.html?order=worker", "worker")
		await(t, arrived, "the payment")
		s.cut() // the answer is lost
		release()
		paid(t, page)
	})
	t.Run("a Stripe that others have written", func(t *testing.T) {
		calls := "100"
		if proof.Long() {
			calls = "1000"
		}
		if got := p.run(t, "esm", "node", "stripe.js", calls); !strings.HasSuffix(strings.TrimSpace(got), calls+" charges") {
			t.Errorf("says %q", got)
		}
	})
}
