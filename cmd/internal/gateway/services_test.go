package gateway

import (
	"bufio"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/npm"
	"github.com/semelhq/semel/internal/proof"
)

//go:embed all:testdata/express testdata/payments.py
var services embed.FS

// A paying service of somebody else's making, as those of testdata: some requests make it pay.
type paying struct {
	address string
	t       *testing.T
}

// A payment is what the service knows of one.
type payment struct{ Account, Fence string }

// startPaying starts the service until the test ends.
func startPaying(t *testing.T, dir, program, file string) paying {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("this test runs a service of others: %v; scripts/servers gets what tests need", err)
	}
	service := exec.Command(path, file)
	service.Dir, service.Stderr = dir, os.Stderr
	in, err := service.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := service.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		service.Process.Kill() //nolint:errcheck // it has ended
		service.Wait()         //nolint:errcheck // killed
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the service does not say where it listens: %v", err)
	}
	return paying{"127.0.0.1:" + strings.TrimSpace(port), t}
}

func (p paying) payments() (all []payment) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(ask(p.t, "GET", "http://"+p.address+"/", "").body), &all); err != nil {
		p.t.Fatal(err)
	}
	return all
}

// pays reports whether a request makes the service pay.
func (p paying) pays(address, line, headers, form string) bool {
	p.t.Helper()
	before := len(p.payments())
	raw(p.t, address, fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n%sContent-Length: %d\r\n\r\n%s",
		line, headers, len(form), form))
	return len(p.payments()) > before
}

// guided is the configuration that operations.md has for such services.
func guided(t *testing.T) Config {
	t.Helper()
	proof.Reads("docs")
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## In front of Express, WSGI and others\n")
	_, file, _ := strings.Cut(section, "```yaml\n")
	file, _, found := strings.Cut(file, "```")
	if !found {
		t.Fatal("operations.md does not say what to set")
	}
	c, err := load(t, file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// as gives a gateway of a test what a file says of requests.
func as(file Config) func(*Config) {
	return func(c *Config) {
		file.Listen, file.Admin, file.Upstream, file.Hosts = c.Listen, c.Admin, c.Upstream, c.Hosts
		file.Store, file.ShutdownTimeout, file.Log, file.Instance = c.Store, c.ShutdownTimeout, c.Log, c.Instance
		*c = file
	}
}

// unguided has the same routes, by the method that pays, and none of the rest.
func unguided(c *Config) {
	c.Scope = Scope{header: "X-Account", set: true}
	c.PassAmbiguous, c.PassOverrides, c.KeepUnderscores = true, true, true
	for _, match := range []string{"POST /payments", "PUT /orders/{id}", "PUT /refunds"} {
		r := Route{Match: match, Unkeyed: UnkeyedRefuse}
		r.Policy.Methods = []string{strings.Fields(match)[0]}
		c.Routes = append(c.Routes, r)
	}
}

// Who takes a request for one that pays.
const (
	wsgi = 1 << iota
	onExpress
	both = wsgi | onExpress
)

// Each of these pays without a key at some service.
var attacksWithoutAKey = []struct {
	line, headers, form string
	takes               int
	always              bool // stopped without any setting
}{
	{"POST /payments", "", "", both, true},
	{"POST /payments/", "", "", both, true},
	{"POST http://x/payments", "", "", onExpress, true},
	{"POST /payments#x", "", "", onExpress, true},
	{"POST /payments", "X-HTTP-Method: POST\r\n", "", both, true},
	{"POST /payments", "X_HTTP_Method_Override: POST\r\n", "", both, true},
	{"POST /p%61yments", "", "", wsgi, true},
	{"POST /PAYMENTS", "", "", both, false},
	{"POST /Payments/", "", "", both, false},
	{"POST //payments", "", "", both, true},
	{"POST /payments%2f", "", "", wsgi, false},
	{"POST /payments%2F%2f", "", "", wsgi, false},
	{"PUT /orders/1%2f2", "", "", onExpress, true},
	{"POST /payments;x", "", "", wsgi, false},
	{"PUT /orders/1;/x", "", "", wsgi, false},
	{"GET /payments", "X-HTTP-Method-Override: POST\r\n", "", wsgi, false},
	{"PUT /payments/", "X-HTTP-Method-Override: post\r\n", "", wsgi, false},
	{"GET /payments", "X_HTTP_Method_Override: POST\r\n", "", wsgi, true},
	{"POST /orders/1", "X-HTTP-Method-Override: PUT\r\n", "", both, false},
	{"POST /orders/1", "X-HTTP-Method: put\r\n", "", onExpress, false},
	{"POST /orders/1", "X-Method-Override: PUT, POST\r\n", "", onExpress, false},
	{"POST /orders/1", "X-Method-Override: PUT\r\nX-Method-Override: POST\r\n", "", onExpress, false},
	{"POST /orders/1?_method=PUT", "", "", both, false},
	{"POST /orders/1?_m%65thod=%50UT", "", "", both, false},
	{"POST /orders/1?a=%&_method=PUT&_method=POST", "", "", both, false},
	{"POST /orders/1?_method=PUT" + strings.Repeat("&", 12000), "", "", both, false},
	{"POST /refunds", "", "_method=PUT", both, false},
}

func TestAttack03_Attack04_ServicesOfOthersAreAttacked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		is    int
		start func(t *testing.T) paying
	}{
		"WSGI": {wsgi, func(t *testing.T) paying { return startPaying(t, "", "python3", "testdata/payments.py") }},
		"Express": {onExpress, func(t *testing.T) paying {
			dir := filepath.Join(t.TempDir(), "service")
			if err := npm.Install(services, "testdata/express", dir); err != nil {
				t.Fatal(err)
			}
			return startPaying(t, dir, "node", "server.js")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := c.start(t)
			url := "http://" + service.address
			g, open := start(t, url, as(guided(t))).Addr().String(), start(t, url, unguided).Addr().String()
			for _, a := range attacksWithoutAKey {
				what := fmt.Sprintf("%.60s %q %s", a.line, a.headers, a.form)
				if got := service.pays(service.address, a.line, a.headers, a.form); got != (a.takes&c.is != 0) {
					t.Errorf("%s: the service takes it: %t, want the other", what, got)
				}
				if service.pays(g, a.line, a.headers, a.form) {
					t.Errorf("%s: has reached the service without a key", what)
				}
				if got := service.pays(open, a.line, a.headers, a.form); got != (a.takes&c.is != 0 && !a.always) {
					t.Errorf("%s: reaches the service where nothing is set: %t, want the other", what, got)
				}
			}

			const forged = "X-Account: me\r\nX_Account: victim\r\nIdempotency_Fence: 99999999999999999\r\n"
			service.pays(service.address, "POST /payments", forged, "")
			all := service.payments()
			if last := all[len(all)-1]; (last.Account != "me" && last.Fence != "") != (c.is == wsgi) {
				t.Errorf("the service reads %+v", last)
			}
			if !service.pays(g, "POST /payments", "Idempotency-Key: k\r\n"+forged, "") {
				t.Error("a request with its key has not reached the service")
			}
			all = service.payments()
			if last := all[len(all)-1]; last.Account != "me" || last.Fence == "" || strings.Contains(last.Fence, "9999999") {
				t.Errorf("behind the gateway the service has read %+v", last)
			}

			const twice = "X-Account: me\r\nX-Account: victim\r\nIdempotency-Key: k2\r\n"
			if service.pays(service.address, "POST /payments", twice, ""); strings.Count(fmt.Sprint(service.payments()), "victim") != map[int]int{wsgi: 2, onExpress: 1}[c.is] {
				t.Errorf("the service does not see two accounts: no attack: %v", service.payments())
			}
			for _, address := range []string{g, open} {
				if service.pays(address, "POST /payments", twice, "") {
					t.Error("a request of two accounts has reached the service")
				}
			}
		})
	}
}
