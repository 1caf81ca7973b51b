package shop

import (
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"go.temporal.io/sdk/client"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/processor"
)

// newShop returns a shop that nobody serves, and its card processor.
func newShop(t *testing.T) (*Shop, *processor.Processor) {
	t.Helper()
	return newShopOn(t, nil)
}

// newShopOn returns one whose sagas run on Temporal, unless that is nil.
func newShopOn(t *testing.T, temporal client.Client) (*Shop, *processor.Processor) {
	t.Helper()
	folder := t.TempDir()
	p, err := processor.Open(processor.Options{Ledger: filepath.Join(folder, "ledger.jsonl")})
	must(t, err)
	server := httptest.NewServer(p.Handler())
	db, err := database.Open(t.Context(), filepath.Join(folder, "shop.db"), Schema())
	must(t, err)
	t.Cleanup(func() {
		server.Close()
		must(t, p.Close())
		must(t, db.Close())
	})
	secret := []byte("thirty-two bytes for the tests!!")
	s, err := New(Options{
		DB: db, Temporal: temporal, Processor: server.URL, Auth: Auth{InsecureDev: true}, AtMostOnce: true, Log: slog.New(slog.DiscardHandler),
		Secrets: Secrets{Identity: secret, Derivation: secret, Encryption: secret},
	})
	must(t, err)
	return s, p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begun writes down a movement as the run with a fence does.
func begun(t *testing.T, s *Shop, id driver.ID, fence uint64) *movement {
	t.Helper()
	m := &movement{id: "pay-1", operation: id.String(), rowKey: "row-1", key: "key-1", tenant: "acme", kind: charge, state: "pending", fence: fence}
	must(t, s.db.Write(t.Context(), func(tx database.Tx) error {
		if err := beginPayment(Purchase{Amount: 4200, Currency: "EUR"})(t.Context(), tx, m); err != nil {
			return err
		}
		_, err := m.insert(t.Context(), tx)
		return err
	}))
	return m
}

func inquiry(id driver.ID, fence uint64) semel.Inquiry {
	return semel.Inquiry{ID: id, Fence: fence, Operation: "POST " + base + "/payments/process"}
}

func state(t *testing.T, s *Shop, id driver.ID) string {
	t.Helper()
	m, err := findMovement(t.Context(), s.db, "operation = $1", id.String())
	must(t, err)
	return m.state
}

// TestAnInquiryThatComesLateDoesNotCloseALaterRun: two processes ask, the first one's finding comes after the operation
// has begun again.
func TestAnInquiryThatComesLateDoesNotCloseALaterRun(t *testing.T) {
	t.Parallel()
	s, _ := newShop(t)
	id := driver.ID{1}
	m := begun(t, s, id, 30)
	must(t, s.never(t.Context(), m, 20))
	if got := state(t, s, id); got != "pending" {
		t.Errorf("the run with the fence 30 is %s, want pending", got)
	}
	must(t, s.never(t.Context(), m, 30))
	if got := state(t, s, id); got != "never" {
		t.Errorf("the run that was asked about is %s, want never", got)
	}
	if _, err := findPayment(t.Context(), s.db, "acme", m.payment); err == nil {
		t.Error("the payment that never was is still there")
	}
}

// TestARunThatIsThoughtDeadFindsItsMovementClosed: the run was asked about before it had begun.
func TestARunThatIsThoughtDeadFindsItsMovementClosed(t *testing.T) {
	t.Parallel()
	s, p := newShop(t)
	id := driver.ID{2}
	for range 2 {
		found, err := s.whatBecame(t.Context(), inquiry(id, 20))
		must(t, err)
		if found.Found != semel.FoundNever {
			t.Fatalf("found %d, want never", found.Found)
		}
	}
	late := &movement{id: "pay-1", operation: id.String(), rowKey: "row-1", kind: charge, state: "pending", fence: 20}
	var mine bool
	must(t, s.db.Write(t.Context(), func(tx database.Tx) (err error) {
		mine, err = late.insert(t.Context(), tx)
		return err
	}))
	if mine || len(p.Ledger()) != 0 {
		t.Errorf("the late run has begun; the ledger has %v", p.Ledger())
	}
}

func TestAKeyThatTheProcessorHasNotSeenIsClosedForTheDeadRun(t *testing.T) {
	t.Parallel()
	s, p := newShop(t)
	id := driver.ID{3}
	m := begun(t, s, id, 10)
	found, err := s.whatBecame(t.Context(), inquiry(id, 11))
	must(t, err)
	if found.Found != semel.FoundNever || state(t, s, id) != "never" {
		t.Errorf("found %d, and the movement is %s: want never", found.Found, state(t, s, id))
	}
	if all := p.Ledger(); len(all) != 1 || all[0].Kind != processor.Closure || all[0].Key != m.key || all[0].Fence != 11 {
		t.Errorf("the processor's ledger has %v, want the closure of the key", all)
	}
}

func TestOperationsThatAreNoPaymentsAreLeftToOthers(t *testing.T) {
	t.Parallel()
	s, _ := newShop(t)
	found, err := s.whatBecame(t.Context(), semel.Inquiry{ID: driver.ID{4}, Fence: 1, Operation: "POST " + base + "/orders"})
	must(t, err)
	if found.Found != semel.FoundNothing {
		t.Errorf("found %d, want nothing", found.Found)
	}
}
