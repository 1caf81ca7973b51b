package e2e

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/scenarios"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/verify"
)

// short are the scenarios of the short form: each way in which the shop protects a call is there, and one of them has
// faults of the card processor.
var short = []string{"create-order", "patch-order", "import-items", "process-payment", "refund-payment", "confirm-intent"}

const shortWithFaults = "process-payment"

// The checker knows nothing of the shop but what stands in a scenario. Calls that ask the card processor are checked
// again while one in five of its answers is lost, or is 500 after the effect.
func TestEachProtectedCallIsSafe(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(scenarios.Files, "*.yaml")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there are no scenarios")
	}
	// They wait most of the time: more of them run at once than there are processors.
	var all errgroup.Group
	all.SetLimit(6)
	checked := 0
	for _, file := range files {
		name := strings.TrimSuffix(file, ".yaml")
		if !proof.Long() && !slices.Contains(short, name) {
			continue
		}
		checked++
		run := func(t *testing.T) {
			s := newStage(t, host.Config{InsecureDev: true})
			read, err := scenarios.Files.ReadFile(file)
			must(t, err)
			text := strings.ReplaceAll(string(read), "http://127.0.0.1:8080", s.urls[0])
			special := specials[file]
			if special.makes != nil {
				text = special.makes(s, text)
			}
			s.safe(t, text, special.skip...)
			if strings.Contains(text, "effects: {url: /dev/ledger") && (proof.Long() || name == shortWithFaults) {
				s.faultyProcessor()
				s.safe(t, text, special.skip...)
			}
		}
		all.Go(func() error {
			t.Run(name, run)
			return nil
		})
	}
	must(t, all.Wait())
	if want := proof.Of(len(short), len(files)); checked != want {
		t.Errorf("%d scenarios are checked, want %d", checked, want)
	}
}

// A special scenario is about things that have to be there.
type special struct {
	makes func(s *stage, text string) string // them, and names them in the scenario
	skip  []string                           // checks that would need other ones
}

var specials = map[string]special{
	"refund-payment.yaml": {makePayment, []string{"tenants"}}, // the payment is one tenant's
	"add-points.yaml":     {skip: []string{"tenants"}},        // the entries of one tenant are counted
	"confirm-order.yaml":  {makeOrders, []string{"two-keys"}}, // an order is confirmed once, under whatever key
	"cancel-order.yaml":   {makeOrders, []string{"two-keys"}},
	"patch-order.yaml":    {makeOrders, []string{"two-keys"}},
	"confirm-intent.yaml": {makeIntents, []string{"two-keys"}},
	"cancel-intent.yaml":  {makeIntents, []string{"two-keys"}},
	"cancel-payment.yaml": {makePrepared, []string{"two-keys"}},
}

// makePayment makes the payment that is given back bit by bit.
func makePayment(s *stage, text string) string {
	r := s.call(0, "POST", "/payments/process", s.newKey(), shop.Purchase{Amount: 1_000_000, Currency: "EUR", Card: "tok_visa"}, asAcme)
	return strings.ReplaceAll(text, noID, decode[shop.Payment](s.t, r).ID)
}

const noID = "00000000-0000-7000-8000-000000000000"

var asAcme = http.Header{"X-Tenant-Id": {"acme"}}

// makeOrders makes the orders with the ids that the scenario's requests have, and makeIntents the intents.
func makeOrders(s *stage, text string) string {
	return s.makeAll("/orders/", shop.NewOrder{Lines: []shop.Line{{Product: "pen-1", Quantity: 1}}}, text)
}

func makeIntents(s *stage, text string) string {
	defer s.faultyProcessor() // an intent ends once, so that there is no second round
	return s.makeAll("/payment-intents/", shop.Purchase{Amount: 4900, Currency: "EUR", Card: "tok_visa"}, text)
}

// makePrepared makes prepared payments, and gives them the ids of the scenario's requests: a client can't choose these.
func makePrepared(s *stage, text string) string {
	defer s.faultyProcessor() // a payment is cancelled once, so that there is no second round
	db, err := database.Open(s.t.Context(), filepath.Join(s.data, "shop.db"), shop.Schema())
	must(s.t, err)
	s.t.Cleanup(func() { must(s.t, db.Close()) })
	forEachID(func(tenant, id string) {
		r := s.call(0, "POST", "/payments/prepare", s.newKey(), shop.Purchase{Amount: 4900, Currency: "EUR", Card: "tok_visa"}, http.Header{"X-Tenant-Id": {tenant}})
		made := decode[shop.Payment](s.t, r).ID
		must(s.t, db.Write(s.t.Context(), func(tx database.Tx) error {
			_, err := tx.Exec(s.t.Context(), "UPDATE payments SET id = $1 WHERE tenant = $2 AND id = $3", id, tenant, made)
			return err
		}))
	})
	return text
}

func (s *stage) makeAll(path string, body any, text string) string {
	forEachID(func(tenant, id string) {
		r := s.call(0, "PUT", path+id, "", body, http.Header{"X-Tenant-Id": {tenant}, "If-None-Match": {"*"}})
		if r.Status != http.StatusCreated {
			s.t.Fatal(r)
		}
	})
	return text
}

// forEachID calls make with the ids of the scenarios' requests.
func forEachID(make func(tenant, id string)) {
	last := proof.Of(250, 499)
	for _, tenant := range []string{"acme", "globex"} {
		for n := 101; n <= last; n++ {
			make(tenant, fmt.Sprintf("%s%d", noID[:len(noID)-3], n))
		}
	}
}

// faultyProcessor has the card processor lose one answer in ten, and fail after the effect of one call in ten.
func (s *stage) faultyProcessor() {
	s.t.Helper()
	how := strings.NewReader(`{"lose_answer":0.1,"fail_after":0.1,"seed":7}`)
	r, err := http.NewRequest(http.MethodPut, s.host.Processor+"/faults", how)
	must(s.t, err)
	res, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer res.Body.Close() //nolint:errcheck // it was read
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s %v", res.Status, text, err)
	}
}

// safe runs the checker, and puts a load on the shop, with faults of the network.
func (s *stage) safe(t *testing.T, text string, skip ...string) {
	t.Helper()
	scenario, err := verify.ReadScenario([]byte(text))
	must(t, err)
	load := verify.LoadOptions{Rate: 20, Duration: proof.Of(time.Second, 10*time.Second), Faults: 0.2, Seed: 7}
	report, err := verify.Run(t.Context(), scenario, verify.Options{Load: load, Skip: skip})
	must(t, err)
	if report.Violated() {
		report.Print(t.Output(), false)
		t.Fail()
	}
}

func TestEachProtectedCallHasAScenario(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(scenarios.Files, "*.yaml")
	must(t, err)
	s, asked := newStage(t, host.Config{}), map[string]bool{}
	for _, file := range files {
		text, err := scenarios.Files.ReadFile(file)
		must(t, err)
		scenario, err := verify.ReadScenario(text)
		must(t, err)
		at, _ := s.contract.path(scenario.Request.Path)
		asked[cmp.Or(scenario.Request.Method, "POST")+" "+at] = true
	}
	for path, item := range s.contract.document["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			call := strings.ToUpper(method) + " " + path
			if method != "get" && strings.Contains(fmt.Sprint(operation), "parameters/Idempotency-Key") && !asked[call] {
				t.Errorf("%s takes a key, and there is no scenario for it", call)
			}
		}
	}
}
