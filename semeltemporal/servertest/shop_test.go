package servertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/server/temporaltest"
)

// A shop is the command of examples/shop, in a process of its own, whose sagas run on Temporal.
type shop struct {
	url, processor string
	cmd            *exec.Cmd
	ended          chan struct{}
	log            bytes.Buffer // read it after the end
}

// buildShop returns the command's path.
func buildShop(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir, build.Env = "../../examples/shop", append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the shop: %v: %s", err, out)
	}
	return path
}

// openShop starts the command on a folder of data. It kills itself at a named point, unless that is "".
func openShop(t *testing.T, path, data string, s *temporaltest.TestServer, crashAt string) *shop {
	t.Helper()
	args := []string{"serve", "--insecure-dev", "--data", data, "--listen", "localhost:0", "--lease", "2s", "--temporal", s.GetFrontendHostPort(), "--temporal-namespace", s.GetDefaultNamespace()}
	if crashAt != "" {
		args = append(args, "--crash-at", crashAt)
	}
	h := &shop{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	h.cmd.Stderr = &h.log
	out, err := h.cmd.StdoutPipe()
	must(t, err)
	must(t, h.cmd.Start())
	lines := bufio.NewScanner(out)
	for h.processor == "" && lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "serving at "); ok {
			h.url = url
		}
		h.processor, _ = strings.CutPrefix(lines.Text(), "card processor at ")
		if h.processor == lines.Text() {
			h.processor = ""
		}
	}
	go func() {
		io.Copy(io.Discard, out) //nolint:errcheck // until it has ended
		h.cmd.Wait()             //nolint:errcheck // it is killed
		close(h.ended)
	}()
	t.Cleanup(func() {
		h.kill()
		if t.Failed() {
			t.Logf("the shop that was to end at %q has said:\n%s", crashAt, h.log.Bytes())
		}
	})
	if h.processor == "" {
		t.Fatal("the shop does not serve")
	}
	return h
}

func (h *shop) kill() {
	h.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-h.ended
}

// stop ends it in order.
func (h *shop) stop(t *testing.T) {
	t.Helper()
	must(t, h.cmd.Process.Signal(os.Interrupt))
	select {
	case <-h.ended:
	case <-time.After(time.Minute):
		t.Fatal("the shop does not stop")
	}
	if code := h.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the shop has stopped with the status %d", code)
	}
}

// call returns status 0 if there is no answer.
func (h *shop) call(t *testing.T, method, url, key, body string, into any) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	r.Header.Set("X-Tenant-ID", "acme")
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0
	}
	if res.StatusCode < 300 && into != nil {
		must(t, json.Unmarshal(text, into))
	}
	return res.StatusCode
}

func (h *shop) api(t *testing.T, method, path, key, body string, into any) int {
	t.Helper()
	return h.call(t, method, h.url+"/api/v1"+path, key, body, into)
}

// An entry is what the card processor's ledger has of a movement of money.
type entry struct{ Kind, Key, Reference string }

// moved returns what the card processor has done since its ledger had some entries.
func (h *shop) moved(t *testing.T, before int) (kinds string, after int) {
	t.Helper()
	var all []entry
	if status := h.call(t, http.MethodGet, h.processor+"/ledger", "", "", &all); status != http.StatusOK {
		t.Fatalf("the ledger: %d", status)
	}
	var list []string
	for _, e := range all[before:] {
		if e.Kind != "closure" {
			list = append(list, e.Kind)
		}
	}
	return strings.Join(list, " "), len(all)
}

// A placed is how far the placing of an order is, as the shop tells.
type placed struct {
	State, Order, Failed, Tracking string
	Steps                          []string
}

// ends waits until a saga has ended. A question that a dead worker was asked is asked again.
func (h *shop) ends(t *testing.T, id string) (p placed) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		var now placed
		if h.api(t, http.MethodGet, "/sagas/"+id, "", "", &now) == http.StatusOK {
			p = now
		}
		if slices.Contains([]string{"done", "compensated", "stuck"}, p.State) {
			return p
		}
		select {
		case <-deadline:
			t.Fatalf("the saga has not ended: %+v", p)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestR85_TheShopPlacesOrdersOnTemporal: they end done and compensated, also when the shop's process dies in the
// middle.
func TestR85_TheShopPlacesOrdersOnTemporal(t *testing.T) {
	path, data := buildShop(t), t.TempDir()
	server := temporaltest.NewServer(temporaltest.WithT(t))
	entries, orders := 0, 0
	order := func(h *shop) string {
		orders++
		var o struct{ ID string }
		if status := h.api(t, http.MethodPost, "/orders", fmt.Sprint("order-", orders), `{"lines":[{"product":"mug-1","quantity":1}]}`, &o); status != http.StatusCreated {
			t.Fatalf("order: %d", status)
		}
		return o.ID
	}
	const toBerlin, declined, nowhere, box = `{"card":"tok_visa","country":"DE","address":"Hauptstrasse 1"}`, `{"card":"tok_declined","country":"DE","address":"Hauptstrasse 1"}`,
		`{"card":"tok_visa","country":"AQ","address":"Hauptstrasse 1"}`, `{"card":"tok_visa","country":"DE","address":"PO box 7"}`
	for _, c := range []struct {
		crashAt, body string
		state, order  string
		failed, moved string
	}{
		{"", toBerlin, "done", "shipped", "", "charge"},
		{"", declined, "compensated", "payment_failed", "pay", "decline"},
		{"", nowhere, "compensated", "refunded", "reserve", "charge refund"},
		{"", box, "compensated", "refunded", "ship", "charge refund"},
		{"saga.pay.charged", toBerlin, "done", "shipped", "", "charge"},
		{"saga.reserve.reserved", toBerlin, "done", "shipped", "", "charge"},
		{"saga.unpay.refunded", box, "compensated", "refunded", "ship", "charge refund"},
	} {
		h := openShop(t, path, data, server, c.crashAt)
		id := order(h)
		place := "/orders/" + id + "/place"
		if status := h.api(t, http.MethodPost, place, "", c.body, nil); status != http.StatusAccepted && (status != 0 || c.crashAt == "") {
			t.Fatalf("at %q: place: %d", c.crashAt, status)
		}
		if c.crashAt != "" {
			select {
			case <-h.ended:
			case <-time.After(time.Minute):
				t.Fatalf("the shop lives after %q", c.crashAt)
			}
			h = openShop(t, path, data, server, "")
		}
		p := h.ends(t, id)
		var kinds string
		kinds, entries = h.moved(t, entries)
		if p.State != c.state || p.Order != c.order || p.Failed != c.failed || kinds != c.moved || (p.Tracking != "") != (c.state == "done") {
			t.Errorf("at %q, %s: %+v, and the ledger has %q", c.crashAt, c.body, p, kinds)
		}
		var again placed
		if status := h.api(t, http.MethodPost, place, "", c.body, &again); status != http.StatusAccepted || again.State != c.state || again.Tracking != p.Tracking {
			t.Errorf("at %q: placed again: %d, %+v", c.crashAt, status, again)
		}
		if status := h.api(t, http.MethodPost, place, "", strings.Replace(c.body, `"address":"`, `"address":"c/o `, 1), nil); status != http.StatusConflict {
			t.Errorf("at %q: placed otherwise: %d, want 409", c.crashAt, status)
		}
		if _, n := h.moved(t, entries); n != entries {
			t.Errorf("at %q: placed again it has moved money: %d entries, want %d", c.crashAt, n, entries)
		}
		h.stop(t)
	}
}
