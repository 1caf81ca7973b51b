package sagas

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/internal/child"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/saga"
)

var postgresServer = servers.Shared[*servers.Postgres]{Start: func() (*servers.Postgres, error) { return servers.NewPostgres(servers.PostgresOptions{}) }}

// SEMEL_SEED repeats the faults and the choices of a run, but not when they come.
func seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SEMEL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEMEL_SEED=%d", seed)
	return seed
}

// A slot is a place for one worker after the other.
type slot struct {
	setup setup

	mu    sync.Mutex
	url   string
	cmd   *exec.Cmd
	ended chan struct{}
}

func (s *slot) start(t *testing.T) {
	told, err := json.Marshal(s.setup)
	if err != nil {
		t.Error(err)
		return
	}
	program, err := child.Program()
	if err != nil {
		t.Error(err)
		return
	}
	cmd, ended := exec.Command(program), make(chan struct{})
	cmd.Env = append(os.Environ(), setupVariable+"="+string(told))
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	s.mu.Lock()
	s.cmd, s.ended, s.url = cmd, ended, ""
	s.mu.Unlock()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			s.mu.Lock()
			s.url = "http://" + address
			s.mu.Unlock()
			break
		}
	}
	go func() {
		defer close(ended)
		for lines.Scan() {
		}
		cmd.Wait() //nolint:errcheck // it is killed
	}()
}

func (s *slot) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// stop sends the worker a signal, and waits until it has ended.
func (s *slot) stop(signal os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd.Process.Signal(signal) //nolint:errcheck // it may have ended
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		s.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-s.ended
	}
	s.url = ""
}

// storages have, besides an address, a way to move their clock; nil if there is none.
var storages = map[string]func(t *testing.T) (address string, moveClock func(by time.Duration)){
	"sqlite": func(t *testing.T) (string, func(time.Duration)) {
		return "sqlite://" + filepath.Join(t.TempDir(), "semel.db"), nil
	},
	"postgres": func(t *testing.T) (string, func(time.Duration)) {
		url := postgresServer.Get(t).URL()
		return url + "&schema=sagas", func(by time.Duration) {
			db, err := pgx.Connect(t.Context(), url)
			if err == nil {
				defer db.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // it is not needed any more
				_, err = db.Exec(t.Context(), fmt.Sprintf(`CREATE OR REPLACE FUNCTION sagas.clock_1() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
					$$ SELECT (extract(epoch FROM clock_timestamp() + interval '%d milliseconds') * 1000000)::bigint $$`, by.Milliseconds()))
			}
			if err != nil && t.Context().Err() == nil {
				t.Errorf("move the clock: %v", err)
			}
		}
	},
}

// TestR85_SagasEndDoneOrCompensatedWhateverDies: three workers, one of them of a later version, are killed and stopped
// all the time. Each saga ends done, with each effect of its version once and none taken back, or compensated, with
// each effect taken back once, in reverse. In the short form it is on one store, by chance.
func TestR85_SagasEndDoneOrCompensatedWhateverDies(t *testing.T) {
	t.Parallel()
	for _, name := range proof.Some(1, slices.Sorted(maps.Keys(storages))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, moveClock := storages[name](t)
			run := newRun(t, address, proof.Of(60, 500))
			end := run.hurt(moveClock)
			run.start()
			run.finish()
			end()
			run.judge()
		})
	}
}

// A run is what a test does with its sagas.
type run struct {
	t        *testing.T
	seed     uint64
	services *services
	slots    []*slot
	orders   *saga.Saga[state]
	ids      []string

	mu    sync.Mutex
	kills map[os.Signal]int
}

func newRun(t *testing.T, address string, n int) *run {
	r := &run{t: t, seed: seed(t), kills: map[os.Signal]int{}}
	r.services = newServices(t, r.seed)
	for i := range 3 {
		s := &slot{setup: setup{Store: address, Services: r.services.url, Newest: i == 0}}
		s.start(t) // one after the other, because the first makes the schema
		t.Cleanup(func() { s.stop(os.Kill) })
		r.slots = append(r.slots, s)
	}
	var err error
	if _, _, r.orders, err = sagas(t.Context(), r.slots[0].setup); err != nil { // its runner does not run
		t.Fatal(err)
	}
	for i := range n {
		r.ids = append(r.ids, fmt.Sprint("order-", i))
	}
	return r
}

// hurt kills and stops workers, and moves the clock back and forth, until end is called.
func (r *run) hurt(moveClock func(time.Duration)) (end func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var wg sync.WaitGroup
	for i, s := range r.slots {
		random := rand.New(rand.NewPCG(r.seed, uint64(2+i)))
		wg.Go(func() {
			for killed := 0; ; killed++ { // the pauses grow, so that a worker comes to do something on a slow machine too
				pause := time.Duration(100+random.IntN(900)) * time.Millisecond * time.Duration(20+killed) / 20
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				signal := []os.Signal{os.Kill, os.Kill, os.Kill, syscall.SIGTERM}[random.IntN(4)]
				s.stop(signal)
				s.start(r.t)
				r.mu.Lock()
				r.kills[signal]++
				r.mu.Unlock()
			}
		})
	}
	if moveClock != nil {
		wg.Go(func() {
			for by := time.Duration(0); ; by = -time.Hour - by {
				moveClock(by)
				select {
				case <-ctx.Done():
					moveClock(0)
					return
				case <-time.After(time.Second):
				}
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// start starts each saga: some at two workers at once, some twice. It cancels some.
func (r *run) start() {
	random := rand.New(rand.NewPCG(r.seed, 100))
	places := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for _, id := range r.ids {
		dice := random.IntN(8)
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			var both sync.WaitGroup
			for i := range 1 + dice%2 {
				both.Go(func() { r.started(id, i+dice) })
			}
			both.Wait()
			if dice < 2 {
				r.cancelled(id)
			}
		})
	}
	wg.Wait()
}

// started starts a saga at whatever worker lives.
func (r *run) started(id string, at int) {
	for until := time.Now().Add(longest); time.Now().Before(until); at++ {
		if status := r.post(id, id, at); status == http.StatusOK {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.t.Errorf("%s can't be started", id)
}

// cancelled cancels a saga, once the store replies in time.
func (r *run) cancelled(id string) {
	var err error
	for until := time.Now().Add(longest); time.Now().Before(until); {
		if err = r.orders.Cancel(r.t.Context(), id); err == nil || errors.Is(err, saga.ErrEnded) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.t.Errorf("cancel: %v", err)
}

func (r *run) post(id, order string, at int) (status int) {
	url := r.slots[at%len(r.slots)].address()
	if url == "" {
		return 0
	}
	res, err := http.Post(fmt.Sprintf("%s/start/%s?order=%s", url, id, order), "", nil)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// longest bounds what has to happen, so that a failure does not hang.
const longest = 5 * time.Minute

// finish waits until each saga has ended. It is also the operator, who has stuck ones tried again.
func (r *run) finish() {
	t := r.t
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	retried := 0
	for _, id := range r.ids {
		for {
			status, err := r.orders.Wait(ctx, id)
			if err != nil {
				if ctx.Err() != nil {
					t.Fatalf("%s does not end: %+v, %v", id, status, err)
				}
				continue // the store gave no reply in time
			}
			if status.State != saga.Stuck {
				break
			}
			err = r.orders.Retry(ctx, id, admin.Decision{Actor: "the test", Reason: "the service works again"})
			if err == nil {
				retried++
			}
		}
	}
	t.Logf("an operator has retried %d times", retried)
	if retried == 0 {
		t.Error("too little happened for this to prove anything: no saga was stuck")
	}
}

func (r *run) judge() {
	t := r.t
	ends, versionsSeen := map[saga.State]int{}, map[string]int{}
	attempts := 0
	for at, id := range r.ids {
		status, err := r.orders.Status(t.Context(), id)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		a := r.services.account(id)
		ends[status.State]++
		versionsSeen[a.version]++
		attempts += status.Attempts
		var receipts []string
		for _, step := range a.effects {
			receipts = append(receipts, "receipt of do "+step+"\n")
		}
		switch reversed := slices.Clone(a.undone); {
		case status.State == saga.Done:
			if !slices.Equal(a.effects, versions[a.version]) || len(a.undone) > 0 || !slices.Equal(status.Value.Receipts, receipts) {
				t.Errorf("%s is done: %+v, %+v", id, a, status.Value)
			}
		case status.State == saga.Compensated:
			if slices.Reverse(reversed); !slices.Equal(a.effects, reversed) || len(a.stands) > 0 {
				t.Errorf("%s is compensated, because of %+v: %+v", id, status.Failure, a)
			}
		default:
			t.Errorf("%s ended as %+v", id, status)
		}
		// A start after the end finds the same saga, and no other input is taken.
		if at < 10 {
			r.started(id, at)
			again, err := r.orders.Status(t.Context(), id)
			if err != nil || again.State != status.State || !again.EndedAt.Equal(status.EndedAt) || again.Attempts != status.Attempts {
				t.Errorf("%s started again: %+v, %v, was %+v", id, again, err, status)
			}
			if code := r.post(id, "another-order", at); code != http.StatusConflict {
				t.Errorf("%s with another input: %d", id, code)
			}
		}
	}
	r.services.tally(t)
	t.Logf("ended: %v, versions: %v, runs: %d, signals: %v", ends, versionsSeen, attempts, r.kills)
	switch {
	case ends[saga.Done] == 0, ends[saga.Compensated] == 0, versionsSeen["1"] == 0, versionsSeen["2"] == 0,
		attempts == len(r.ids), r.kills[os.Kill] < 3, r.kills[syscall.SIGTERM] == 0:
		t.Error("too little happened for this to prove anything")
	}
}
