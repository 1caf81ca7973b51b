package gateway

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// A payment is what the service of testdata/payments.py knows of one.
type payment struct {
	Account string `json:"HTTP_X_ACCOUNT"`
	Fence   string `json:"HTTP_IDEMPOTENCY_FENCE"`
}

// startWSGI starts the service until the test ends, and returns its address and a function that asks for its payments.
func startWSGI(t *testing.T) (address string, payments func() []payment) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("this test runs a service of Python's: %v; scripts/servers gets what tests need", err)
	}
	service := exec.Command(python, "testdata/payments.py")
	out, err := service.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		service.Process.Kill() //nolint:errcheck // it has ended
		service.Wait()         //nolint:errcheck // killed
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the service does not say where it listens: %v", err)
	}
	address = "127.0.0.1:" + strings.TrimSpace(port)
	return address, func() (all []payment) {
		t.Helper()
		if err := json.Unmarshal([]byte(ask(t, "GET", "http://"+address+"/", "").body), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
}

func TestAttack03_Attack04_AWSGIServiceBehindTheGatewayIsAttacked(t *testing.T) {
	t.Parallel()
	service, payments := startWSGI(t)
	g := start(t, "http://"+service, func(c *Config) {
		c.Scope, c.MatchCase = Scope{header: "X-Account", set: true}, new(bool)
		c.Routes = []Route{{Match: "POST /payments", Unkeyed: UnkeyedRefuse}}
	})
	send := func(address, line, headers string) answer {
		return raw(t, address, line+" HTTP/1.1\r\nHost: x\r\n"+headers+"Content-Length: 0\r\nConnection: close\r\n\r\n")
	}
	for _, attack := range []struct{ line, headers string }{
		{"POST /payments", ""},
		{"POST /payments/", ""},
		{"POST /PAYMENTS", ""},
		{"POST /Payments/", ""},
		{"POST /payments%2f", ""},
		{"POST /payments%2F%2f", ""},
		{"POST /payments;x", ""},
		{"POST /p%61yments", ""},
		{"POST //payments", ""},
		{"GET /payments", "X-HTTP-Method-Override: POST\r\n"},
		{"PUT /payments/", "X-HTTP-Method-Override: post\r\n"},
		{"GET /payments", "X_HTTP_Method_Override: POST\r\n"},
	} {
		before := len(payments())
		send(g.Addr().String(), attack.line, attack.headers)
		if n := len(payments()); n != before {
			t.Errorf("%s %s: has reached the service without a key", attack.line, attack.headers)
			before = n
		}
		if send(service, attack.line, attack.headers); len(payments()) != before+1 {
			t.Errorf("%s %s: the service would not have taken it: no attack", attack.line, attack.headers)
		}
	}

	const forged = "X_Account: victim\r\nIdempotency_Fence: 99999999999999999\r\n"
	send(service, "POST /payments", forged)
	send(g.Addr().String(), "POST /payments", "X-Account: me\r\nIdempotency-Key: k\r\n"+forged).wants(t, 200, "")
	all := payments()
	if last := all[len(all)-2]; last.Account != "victim" || last.Fence != "99999999999999999" {
		t.Errorf("the service would have read %+v: no attack", last)
	}
	if last := all[len(all)-1]; last.Account != "me" || last.Fence == "" || strings.Contains(last.Fence, "9999999") {
		t.Errorf("behind the gateway the service has read %+v", last)
	}
}
