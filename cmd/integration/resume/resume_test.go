package resume

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/child"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
)

// A service is a process that serves orders.
type service struct {
	url   string
	cmd   *exec.Cmd
	ended chan struct{}
}

func start(t *testing.T, s setup) *service {
	t.Helper()
	if s.Lease == 0 {
		s.Lease = shortLease
	}
	told, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	program, err := child.Program()
	if err != nil {
		t.Fatal(err)
	}
	p := &service{cmd: exec.Command(program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), setupVariable+"="+string(told))
	p.cmd.Stderr = t.Output()
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && p.url == "" {
		if address, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			p.url = "http://" + address
			break
		}
	}
	go func() {
		defer close(p.ended)
		for lines.Scan() {
		}
		p.cmd.Wait() //nolint:errcheck // it is killed
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-p.ended
	})
	if p.url == "" {
		t.Fatal("the service did not start")
	}
	return p
}

// long bounds what has to happen, so that a failure does not hang.
const long = time.Minute

// died reports whether the process ends by itself.
func (p *service) died() bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(long):
		return false
	}
}

// overtaken reports whether an answer is that of a process for which the machine had no time: it has lost its lease, or
// has given up its claim, and tells its client to ask again.
func (a answered) overtaken() bool { return a.status == http.StatusConflict || a.status >= 500 }

// tries is how often an order is placed anew, in a storage and with ledgers of its own, whose process was overtaken.
const tries = 20

// answered is what came back for an order.
type answered struct {
	status   int
	body     string
	replayed bool
	location string
}

func (p *service) order(order, prefer string) (answered, error) {
	r, err := http.NewRequest(http.MethodPost, p.url+"/orders", strings.NewReader(order))
	if err != nil {
		return answered{}, err
	}
	r.Header["idempotency-key"] = []string{"key-of-" + order} // in this form net/http does not send it again by itself
	if prefer != "" {
		r.Header.Set("Prefer", prefer)
	}
	return send(r)
}

func send(r *http.Request) (answered, error) {
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return answered{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answered{res.StatusCode, string(body), res.Header.Get("Idempotent-Replayed") == "true", res.Header.Get("Location")}, err
}

// untilDone sends the order until it is done.
func (p *service) untilDone(t *testing.T, order string) answered {
	t.Helper()
	for until := time.Now().Add(long); time.Now().Before(until); {
		a, err := p.order(order, "")
		switch {
		case err != nil:
			t.Fatal(err)
		case a.status == http.StatusCreated:
			return a
		case !a.overtaken():
			t.Fatalf("answered %d %s", a.status, a.body)
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatal("the order does not end")
	return answered{}
}

// state asks for the operation of an order by its key.
func (p *service) state(t *testing.T, order string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, p.url+"/operations", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "key-of-"+order)
	a, err := send(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ State string }
	if a.status == http.StatusOK {
		if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
			t.Fatal(err)
		}
	}
	return doc.State
}

// untilEnded waits until nobody has to ask for the operation any more.
func (p *service) untilEnded(t *testing.T, order string) {
	t.Helper()
	for until := time.Now().Add(long); time.Now().Before(until); {
		if p.state(t, order) == "succeeded" {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("nobody finishes the order: it is %q", p.state(t, order))
}

// A successor is who goes on with an order whose process has died.
type successor string

const (
	byClient    successor = "client"
	byCompleter successor = "completer"
	byBoth      successor = "both"
)

// TestR52_R84_KilledAtEveryPoint: the process of an order is killed before and after each of its verbs and calls.
// However it goes on, each of the three ledgers has one entry, and all answers are the same. In the short form one
// successor has its turn on each store, by chance.
func TestR52_R84_KilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, store := range storages {
		for _, who := range proof.Some(1, store.successors...) {
			t.Run(store.name+"/"+string(who), func(t *testing.T) {
				t.Parallel()
				last := pointsOf(t, store)
				for at := int64(1); at <= last; at++ {
					t.Run(fmt.Sprint(at), func(t *testing.T) {
						t.Parallel()
						killedAt(t, store, at, who)
					})
				}
			})
		}
	}
}

// pointsOf counts the points of an order that nothing kills.
func pointsOf(t *testing.T, store storage) int64 {
	t.Helper()
	const verbs, calls = 2 + 3*2 + 2, 3 * 2 // a claim, three saves, a settle
	// With a lease that nothing ends here.
	s := setup{Ledgers: newLedgers(t).url, DieAt: verbs + calls + 1, Lease: time.Minute, Store: store.fresh(t)}
	p := start(t, s)
	if a, err := p.order("counted", ""); err != nil || a.status != http.StatusCreated {
		t.Fatalf("answered %d %s, %v: an order has more points than %d", a.status, a.body, err, s.DieAt-1)
	}
	s.DieAt--
	s.Store = store.fresh(t)
	p = start(t, s)
	if a, err := p.order("counted-again", ""); err == nil || !p.died() {
		t.Fatalf("answered %d %s: an order has less points than %d", a.status, a.body, s.DieAt)
	}
	return s.DieAt
}

// died places an order at a process that is to die at a point, and returns what its successors are to be told.
func died(t *testing.T, store storage, at int64) (s setup, l *ledgers) {
	t.Helper()
	for range tries {
		l = newLedgers(t)
		s = setup{Store: store.fresh(t), Ledgers: l.url, DieAt: at}
		first := start(t, s)
		a, err := first.order("order", "")
		switch {
		case err == nil && a.overtaken():
			continue
		case err == nil:
			t.Fatalf("answered %d %s by a process that was to die", a.status, a.body)
		case !first.died():
			t.Fatal("the process did not die")
		}
		s.DieAt = 0
		return s, l
	}
	t.Fatal("the process was overtaken each time")
	return s, l
}

func killedAt(t *testing.T, store storage, at int64, who successor) {
	s, l := died(t, store, at)
	s.Complete = who != byClient
	second := start(t, s)
	var answers []answered
	switch who {
	case byClient:
		answers = append(answers, second.untilDone(t, "order"))
	case byCompleter:
		if second.state(t, "order") != "" { // else the process died before it had claimed
			second.untilEnded(t, "order")
		}
	case byBoth:
		third := start(t, s)
		var wg sync.WaitGroup
		got := make([]answered, 4)
		for i := range got {
			wg.Go(func() { got[i] = []*service{second, third}[i%2].untilDone(t, "order") })
		}
		wg.Wait()
		answers = got
	}
	answers = append(answers, second.untilDone(t, "order"))
	for _, a := range answers {
		if a.body != answers[0].body {
			t.Errorf("answered %q and %q", answers[0].body, a.body)
		}
	}
	if !answers[len(answers)-1].replayed && who != byCompleter {
		t.Error("the last answer is not marked as a replay")
	}
	l.check(t, "order")
}

// TestR33_R52_ARestartFinishesWhatWasAnsweredWith202: nobody asks for the operation again, but for its state.
func TestR33_R52_ARestartFinishesWhatWasAnsweredWith202(t *testing.T) {
	t.Parallel()
	for _, store := range storages {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			const afterTheCharge = 2 + 2
			var s setup
			var l *ledgers
			for try := 1; ; try++ {
				l = newLedgers(t)
				l.gate = make(chan struct{}) // so that the 202 has arrived before the process dies
				s = setup{Store: store.fresh(t), Ledgers: l.url, DieAt: afterTheCharge}
				first := start(t, s)
				a, err := first.order("order", "respond-async")
				close(l.gate)
				if (err != nil || a.overtaken()) && try < tries {
					continue // or its lease was over before the answer had arrived, and it died of its release
				}
				if err != nil || a.status != http.StatusAccepted || !strings.HasPrefix(a.location, "/operations/") {
					t.Fatalf("answered %d %s, Location %q, %v", a.status, a.body, a.location, err)
				}
				if !first.died() {
					t.Fatal("the process did not die")
				}
				break
			}
			s.DieAt, s.Complete = 0, true
			second := start(t, s)
			second.untilEnded(t, "order")
			l.check(t, "order")
			if a, err := second.order("order", ""); err != nil || a.status != http.StatusCreated || !a.replayed {
				t.Errorf("answered %d %s, replayed %v, %v", a.status, a.body, a.replayed, err)
			}
		})
	}
}

// TestR84_Case42_ASlowStepIsNotRunBesideItself: a step takes longer than the lease. Neither a client's repeats at
// another process nor that process's completer run it again while its own process lives.
func TestR84_Case42_ASlowStepIsNotRunBesideItself(t *testing.T) {
	t.Parallel()
	for _, store := range storages {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			l := newLedgers(t)
			l.gate = make(chan struct{})
			open := sync.OnceFunc(func() { close(l.gate) })
			t.Cleanup(open) // the ledgers end only when all their calls have
			s := setup{Store: store.fresh(t), Ledgers: l.url, Complete: true, Lease: longLease}
			first, second := start(t, s), start(t, s)
			got := make(chan answered, 1)
			place := func() {
				a, err := first.order("order", "")
				if err != nil {
					a.body = err.Error()
				}
				got <- a
			}
			go place()
			for l.called("charge") == 0 {
				select {
				case a := <-got:
					if !a.overtaken() {
						t.Fatalf("answered %d %s before the step", a.status, a.body)
					}
					go place()
				case <-time.After(time.Millisecond):
				}
			}
			for until := time.Now().Add(5 * longLease / 4); time.Now().Before(until); {
				// Unavailable is a store that does not answer in time, on a busy machine.
				a, err := second.order("order", "")
				if err != nil || a.status != http.StatusConflict && a.status != http.StatusServiceUnavailable {
					t.Fatalf("answered %d %s, %v while the step runs", a.status, a.body, err)
				}
				time.Sleep(longLease / 15)
			}
			open()
			if a := <-got; a.status != http.StatusCreated || a.replayed {
				t.Errorf("answered %d %s, replayed %v", a.status, a.body, a.replayed)
			}
			if a := second.untilDone(t, "order"); !a.replayed {
				t.Errorf("answered %d %s, not as a replay", a.status, a.body)
			}
			for _, name := range ledgerNames {
				if n := l.called(name); n != 1 {
					t.Errorf("the ledger %s was called %d times, want 1", name, n)
				}
			}
			l.check(t, "order")
		})
	}
}

// A storage is where a service keeps its records.
type storage struct {
	name       string
	successors []successor
	fresh      func(t *testing.T) string
}

var storages = []storage{
	{"sqlite", []successor{byClient, byCompleter, byBoth}, func(t *testing.T) string {
		return "sqlite://" + filepath.Join(t.TempDir(), "semel.db")
	}},
	{"postgres", []successor{byBoth}, func(t *testing.T) string {
		return postgresServer.Get(t).URL() + "&schema=" + uniqueName()
	}},
	{"redis", []successor{byBoth}, func(t *testing.T) string {
		return "redis://" + redisServer.Get(t).Addr() + "?prefix=" + uniqueName()
	}},
}

// The servers that tests share, started when they are first asked for.
var (
	postgresServer = servers.Shared[*servers.Postgres]{Start: func() (*servers.Postgres, error) { return servers.NewPostgres(servers.PostgresOptions{}) }}
	redisServer    = servers.Shared[*servers.Redis]{Start: func() (*servers.Redis, error) { return servers.NewRedis() }}
	names          atomic.Int64
)

// uniqueName names a part of a server that no other test has.
func uniqueName() string { return fmt.Sprint("resume_", names.Add(1)) }

func closeServers() error {
	return errors.Join(postgresServer.Close(), redisServer.Close(), child.Remove())
}
