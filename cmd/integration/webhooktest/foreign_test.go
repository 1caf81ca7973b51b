package webhooktest

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/npm"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/webhook"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

//go:embed all:testdata
var foreign embed.FS

var secret, another = webhook.NewSecret(), webhook.NewSecret()

// payload has what a careless reader would change.
const payload = `{ "b": 1.0, "a": "ü\u00fc €", "n": 9007199254740993 }`

// home is where what npm installs goes.
var home string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if home, err = os.MkdirTemp("", "semel-webhooktest-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(home) //nolint:errcheck // a temporary folder
		return m.Run()
	}())
}

var installed = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(home, "installed")
	return dir, npm.Install(foreign, "testdata", dir)
})

// packages starts testdata/server.js, and returns its address. It ends with the test.
func packages(t *testing.T) string {
	t.Helper()
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(t.Context(), "node", "server.js", secret)
	server.Dir, server.Stderr = dir, os.Stderr
	stdin, err := server.StdinPipe() // it ends when this does, also if the test is killed
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = server.Wait() // it may have been killed
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("server.js has not said where it listens: %v", err)
	}
	return strings.TrimSpace(address)
}

// goLibrary verifies with the library of the specification.
func goLibrary(t *testing.T) http.Handler {
	library, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = library.Verify(body, r.Header)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func TestOthersAcceptWhatIsSignedWithTheirSecretOnly(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(goLibrary(t))
	t.Cleanup(server.Close)
	node := packages(t)
	for name, url := range map[string]string{
		"the Go library":            server.URL,
		"standardwebhooks from npm": node + "/verify/standardwebhooks",
		"svix from npm":             node + "/verify/svix",
	} {
		for _, c := range []struct {
			why     string
			secrets []string
			ok      bool
		}{
			{"its secret", []string{secret}, true},
			{"its secret, after a new one", []string{another, secret}, true},
			{"another secret", []string{another}, false},
		} {
			endpoint := func(context.Context, *outbox.Message) (webhook.Endpoint, error) {
				return webhook.Endpoint{ID: name, URL: url, Secrets: c.secrets}, nil
			}
			sender, err := webhook.New(endpoint, webhook.Options{
				AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			})
			if err != nil {
				t.Fatal(err)
			}
			err = sender.Publish(t.Context(), []*outbox.Message{{ID: "msg_1", Topic: "orders", Payload: []byte(payload)}})[0]
			if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "answered 401") {
				t.Errorf("%s, %s: %v, want accepted %v", name, c.why, err, c.ok)
			}
		}
	}
}

// What others have signed runs once, though each delivery has another signature.
func TestWhatOthersHaveSignedRunsOnce(t *testing.T) {
	t.Parallel()
	library, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	node := packages(t)
	signers := map[string]func(t *testing.T, id string, at time.Time) string{
		"the Go library": func(t *testing.T, id string, at time.Time) string {
			signature, err := library.Sign(id, at, []byte(payload))
			if err != nil {
				t.Fatal(err)
			}
			return signature
		},
		"Python": python,
	}
	for _, name := range []string{"standardwebhooks", "svix"} {
		signers[name+" from npm"] = func(t *testing.T, id string, at time.Time) string {
			r := request(t, node+"/sign/"+name, id, at, "")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			return answer.Header.Get("webhook-signature")
		}
	}
	for name, sign := range signers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			h := receiver(t, &runs)
			now := time.Now()
			for i, c := range []struct {
				id, signedID string
				at           time.Time
				status, runs int
			}{
				{"msg_1", "msg_1", now.Add(-time.Minute), 204, 1},
				{"msg_1", "msg_1", now, 204, 1}, // a redelivery
				{"msg_2", "msg_1", now, 401, 1},
				{"msg_2", "msg_2", now, 204, 2},
				{"msg_3", "msg_3", now.Add(-time.Hour), 401, 2},
			} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, request(t, "/hooks", c.id, c.at, sign(t, c.signedID, c.at)))
				if w.Code != c.status || runs != c.runs {
					t.Errorf("delivery %d: %d %s, %d runs; want %d, %d", i+1, w.Code, w.Body, runs, c.status, c.runs)
				}
			}
		})
	}
}

func receiver(t *testing.T, runs *int) http.Handler {
	t.Helper()
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(webhook.Scope), semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := webhook.NewReceiver(guard, func(*http.Request) (webhook.Source, error) {
		return webhook.Source{Name: "others", Secrets: []string{secret}}, nil
	}, webhook.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*runs++
		w.WriteHeader(http.StatusNoContent)
	}))
}

func request(t *testing.T, url, id string, at time.Time, signature string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	r.Header.Set("webhook-signature", signature)
	return r
}

func python(t *testing.T, id string, at time.Time) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/sign.py", secret, id, strconv.FormatInt(at.Unix(), 10))
	cmd.Stdin = bytes.NewReader([]byte(payload))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sign.py: %v", err)
	}
	return strings.TrimSpace(string(out))
}
