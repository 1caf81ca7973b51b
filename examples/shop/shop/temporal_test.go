package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/semelhq/semel/examples/shop/processor"
)

// A suite is a Temporal that runs a workflow to its end when it is started, in the SDK's test environment.
type suite struct {
	temporalclient.Client
	shop *Shop // whose worker runs it

	mu    sync.Mutex
	ended map[string]*testsuite.TestWorkflowEnvironment // by the workflow's id
	began time.Time
}

func (s *suite) ExecuteWorkflow(_ context.Context, o temporalclient.StartWorkflowOptions, workflow any, args ...any) (temporalclient.WorkflowRun, error) {
	var all testsuite.WorkflowTestSuite
	all.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := all.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // 1 s is little on a busy machine
	if err := s.shop.registerOnTemporal(env); err != nil {
		return nil, err
	}
	env.ExecuteWorkflow(workflow, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[o.ID] = env
	return nil, env.GetWorkflowError()
}

func (s *suite) env(id string) *testsuite.TestWorkflowEnvironment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[id]
}

func (s *suite) DescribeWorkflow(_ context.Context, id, _ string) (*temporalclient.WorkflowExecutionDescription, error) {
	if s.env(id) == nil {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	d := &temporalclient.WorkflowExecutionDescription{}
	d.WorkflowExecution.ID, d.Status, d.WorkflowStartTime, d.WorkflowCloseTime = id, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, s.began, &s.began
	return d, nil
}

func (s *suite) GetWorkflow(_ context.Context, id, _ string) temporalclient.WorkflowRun {
	return &suiteRun{env: s.env(id)}
}

type suiteRun struct {
	temporalclient.WorkflowRun
	env *testsuite.TestWorkflowEnvironment
}

func (r *suiteRun) Get(_ context.Context, v any) error { return r.env.GetWorkflowResult(v) }

func newShopOnTemporal(t *testing.T) (*Shop, *processor.Processor) {
	t.Helper()
	temporal := &suite{ended: map[string]*testsuite.TestWorkflowEnvironment{}, began: time.Now()}
	s, ledger := newShopOn(t, temporal)
	temporal.shop = s
	return s, ledger
}

// sagaEnds returns how an order's saga ends.
func sagaEnds(t *testing.T, s *Shop, p *Placing) (v Saga) {
	t.Helper()
	for v.State == "" || v.State == "running" || v.State == "compensating" {
		must(t, t.Context().Err())
		w := ask(s, http.MethodGet, "/sagas/"+p.Order.String(), "", "")
		if w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		v = Saga{}
		must(t, json.Unmarshal(w.Body.Bytes(), &v))
	}
	return v
}

// TestR85_AnOrderIsPlacedOnTemporalAsInTheDatabase: with the same end, moves of money and their keys, and stock.
func TestR85_AnOrderIsPlacedOnTemporalAsInTheDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, card, country, address string
		want                         string
	}{
		{"it is shipped", "tok_visa", "DE", "Hauptstrasse 1", "done, the order is shipped, failed: ; [charge]; stock 999, room 999"},
		{"the card is declined", "tok_declined", "DE", "Hauptstrasse 1", "compensated, the order is payment_failed, failed: pay; [decline]; stock 1000, room 1000"},
		{"no carrier goes there", "tok_visa", "AQ", "Hauptstrasse 1", "compensated, the order is refunded, failed: reserve; [charge refund]; stock 1000, room 1000"},
		{"no carrier takes it", "tok_visa", "DE", "PO box 7", "compensated, the order is refunded, failed: ship; [charge refund]; stock 1000, room 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, engine := range []string{"the database", "Temporal"} {
				open := newShop
				if engine == "Temporal" {
					open = newShopOnTemporal
				}
				s, ledger := open(t)
				p, _ := placed(t, s)
				body := fmt.Sprintf(`{"card":%q,"country":%q,"address":%q}`, c.card, c.country, c.address)
				w := ask(s, http.MethodPost, "/orders/"+p.Order.String()+"/place", "", body)
				if w.Code != http.StatusAccepted || w.Header().Get("Location") != base+"/sagas/"+p.Order.String() {
					t.Fatal(w.Code, w.Header(), w.Body)
				}
				v := sagaEnds(t, s, p)
				must(t, s.Drain(t.Context()))
				if got := endOf(t, s, ledger, &v, p); got != c.want {
					t.Errorf("on %s: %s, want %s", engine, got, c.want)
				}
				if v.Began.IsZero() || (v.Tracking != "") != (v.State == "done") {
					t.Errorf("on %s it is %+v", engine, v)
				}
				for _, e := range ledger.Ledger() {
					if want := s.place.StepKey(s.o.Secrets.Derivation, p.id(), "pay", e.Kind == processor.Refund); e.Kind != processor.Closure && e.Key != want {
						t.Errorf("on %s money moved under the key %q, want %q: %+v", engine, e.Key, want, e)
					}
				}
			}
		})
	}
}

func endOf(t *testing.T, s *Shop, ledger *processor.Processor, v *Saga, p *Placing) string {
	t.Helper()
	var kinds []string
	for _, e := range ledger.Ledger() {
		if e.Kind != processor.Closure {
			kinds = append(kinds, string(e.Kind))
		}
	}
	var books int
	must(t, s.db.QueryRow(t.Context(), "SELECT stock FROM products WHERE id = 'book-1'").Scan(&books))
	return fmt.Sprintf("%s, the order is %s, failed: %s; [%s]; stock %d, room %d", v.State, orderState(t, s, p), v.Failed, strings.Join(kinds, " "), books, room(t, s))
}

// TestASagaStaysWithTheDatabaseThatHasBegunIt: the shop is moved to Temporal meanwhile.
func TestASagaStaysWithTheDatabaseThatHasBegunIt(t *testing.T) {
	t.Parallel()
	s, ledger := newShopOnTemporal(t)
	p, _ := placed(t, s)
	on := s.sagas.(*engines)
	_, err := on.database.Start(t.Context(), p.id(), *p)
	must(t, err)
	body := `{"card":"tok_visa","country":"DE","address":"Hauptstrasse 1"}`
	for range 2 {
		if w := ask(s, http.MethodPost, "/orders/"+p.Order.String()+"/place", "", body); w.Code != http.StatusAccepted {
			t.Error(w.Code, w.Body)
		}
		if v := sagaEnds(t, s, p); v.State != "done" || v.Order != "shipped" {
			t.Errorf("it ended as %+v", v)
		}
	}
	if w := ask(s, http.MethodPost, "/orders/"+p.Order.String()+"/place", "", strings.Replace(body, "visa", "other", 1)); w.Code != http.StatusConflict {
		t.Error(w.Code, w.Body)
	}
	if n := len(s.o.Temporal.(*suite).ended); n != 0 || count(ledger, processor.Charge) != 1 {
		t.Errorf("Temporal has run %d sagas, and the ledger has %v", n, ledger.Ledger())
	}
	must(t, s.Drain(t.Context()))
}
