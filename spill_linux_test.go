package semel_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// A disk that becomes full in the middle of an answer: what lies in the temporary file can be read, but no more be
// written.
func TestField06_R38_ADiskThatBecomesFull(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		for _, torn := range []bool{false, true} {
			t.Run(fmt.Sprint(proto, " torn ", torn), func(t *testing.T) {
				t.Parallel()
				dir, l := t.TempDir(), &ledger{}
				g, seen := newGuardWith(t, nil, semel.Options{TempDir: dir, Policy: semel.Policy{OnLost: semel.Rerun, MaxResponseBody: 1000}})
				parts := []string{strings.Repeat("a", 900), strings.Repeat("b", 900), strings.Repeat("c", 900), strings.Repeat("d", 900)}
				wire := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					l.add()
					for i, part := range parts {
						if i == 2 {
							if torn {
								truncated(t, dir, 1000)
							}
							readOnly(t, dir)
						}
						if n, err := io.WriteString(w, part); n != len(part) || err != nil {
							t.Errorf("write: %d, %v", n, err)
						}
					}
				})))
				r := wire.send(t, "k", "{}")
				if want := strings.Join(parts, ""); torn != r.broken() || !torn && r.body != want {
					t.Errorf("the client got %d, %d bytes, %v; torn %t", r.status, len(r.body), r.err, torn)
				}
				unavailable(t, wire.send(t, "k", "{}"))
				if l.count() != 1 || seen.count(event.NotReplayable) != 1 {
					t.Errorf("%d executions, %d events", l.count(), seen.count(event.NotReplayable))
				}
				if bytes.Contains([]byte(r.body), []byte{0}) || openFiles(t, dir) != 0 {
					t.Errorf("%d files are open", openFiles(t, dir))
				}
			})
		}
	}
}

// A request whose temporary file fails on the way is not run, and may come again.
func TestField06_R24_ARequestWhoseTemporaryFileFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t testing.TB, dir string){
		"the disk is full":  readOnly,
		"the file is short": func(t testing.TB, dir string) { truncated(t, dir, 3) },
	} {
		for i, coding := range []string{"", "gzip", "", "gzip"} {
			digest := i < 2
			t.Run(fmt.Sprint(name, " ", coding, " digest ", digest), func(t *testing.T) {
				t.Parallel()
				dir, s, l := t.TempDir(), memstore.New(), &ledger{}
				g, _ := newGuardWith(t, s, semel.Options{TempDir: dir, Policy: semel.Policy{SpoolRequestAbove: 16}})
				h := g.Wrap(http.HandlerFunc(l.pay))
				body := `{"note":"` + strings.Repeat("0123456789", 100) + `"}`
				if coding != "" {
					body = string(packed(rand.Text() + body))
				}
				broken := func() *http.Request {
					r := post("k", "", "Content-Encoding", coding)
					r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(body[:40]), once(func() { fail(t, dir) }),
						strings.NewReader(body[40:]), once(func() {
							if name == "the file is short" {
								fail(t, dir)
							}
						}))), -1
					if digest {
						sum := sha256.Sum256([]byte(body))
						r.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
					}
					return r
				}
				for range 2 {
					checkProblem(t, answer(h, broken()), http.StatusServiceUnavailable, refusal.StoreUnavailable)
				}
				checkEffects(t, l, 0)
				checkRecords(t, s, 0)
				if n := openFiles(t, dir); n != 0 {
					t.Errorf("%d files are open", n)
				}
			})
		}
	}
}

// once is an empty source that calls f when it is read.
type once func()

func (f once) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// readOnly lets the open files of a folder be read, but no more be written.
func readOnly(t testing.TB, dir string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		name := filepath.Join("/proc/self/fd", fd.Name())
		if target, err := os.Readlink(name); err != nil || !strings.HasPrefix(target, dir+"/") {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var number int
		if _, err := fmt.Sscan(fd.Name(), &number); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(f.Fd()), number, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
}
