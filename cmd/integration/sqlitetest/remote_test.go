package sqlitetest

import (
	"context"
	"database/sql"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/child"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/sqlitestore"
)

// The test binary serves as another process that has handles on files: with this variable set it executes verbs that
// come on its standard input. It ends with that.
const serverVariable = "SEMEL_SQLITETEST_SERVER"

func TestMain(m *testing.M) {
	if told := os.Getenv(victimVariable); told != "" {
		if err := liveAsVictim(told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(serverVariable) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if path := os.Getenv(relayVariable); path != "" {
		fmt.Fprintln(os.Stderr, relayUntilKilled(path))
		os.Exit(1)
	}
	code := m.Run()
	if err := child.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A question is a verb, with its arguments and what the test's clock shows. Verb "" ends the context of an earlier one.
type question struct {
	Serial    int
	Handle    int
	Verb      string
	Path      string // to open
	Clock     int64  // in nanoseconds; 0 means the machine's
	ID        driver.ID
	Claim     driver.Claim
	By        driver.Owner
	Extension driver.Extension
	Outcome   driver.Outcome
	Token     driver.Token
	Limit     int
	Query     driver.Query
	Name      string // of a step
	Result    []byte
	Key       string // of an order
	OneCommit bool
}

type reply struct {
	Serial  int
	Records []wireRecord
	Owned   bool
	N       int
	Steps   map[string][]byte
	Err     *wireError
	Counts  driver.Counts
}

type wireRecord struct {
	ID   driver.ID
	Data []byte // empty if it is absent
	Now  driver.Time
}

// A wireError keeps what callers ask an error for.
type wireError struct {
	Text  string
	Kinds []int
}

var errorKinds = []error{
	driver.ErrFull, driver.ErrUnreadable, driver.ErrHeld, context.Canceled, context.DeadlineExceeded,
	sqlitestore.ErrLocked, sqlitestore.ErrClosed,
}

func (e *wireError) Error() string { return e.Text }

func (e *wireError) Is(target error) bool {
	for _, k := range e.Kinds {
		if errorKinds[k] == target {
			return true
		}
	}
	return false
}

func wrapError(err error) *wireError {
	if err == nil {
		return nil
	}
	e := &wireError{Text: err.Error()}
	for k, kind := range errorKinds {
		if errors.Is(err, kind) {
			e.Kinds = append(e.Kinds, k)
		}
	}
	return e
}

func wrapRecord(id driver.ID, rec driver.Record) wireRecord {
	w := wireRecord{ID: id, Now: rec.Now}
	if rec.State != driver.Absent {
		data, err := rec.AppendBinary(nil)
		if err != nil {
			panic(err)
		}
		w.Data = data
	}
	return w
}

func (w wireRecord) record() (rec driver.Record, err error) {
	if len(w.Data) > 0 {
		err = rec.UnmarshalBinary(w.Data)
	}
	rec.Now = w.Now
	return rec, err
}

// A served handle is one of the other process's.
type served struct {
	db    *sql.DB
	store *sqlitestore.Store
	clock atomic.Int64
}

func openServed(q question) (*served, error) {
	h := &served{}
	o := sqlitestore.Options{}
	if q.Clock != 0 {
		h.clock.Store(q.Clock)
		o.Clock = func() time.Time { return time.Unix(0, h.clock.Load()) }
	}
	var err error
	if h.db, err = openFile(q.Path, ""); err == nil {
		h.store, err = sqlitestore.Open(context.Background(), h.db, o)
	}
	return h, err
}

func (h *served) set(clock int64) {
	for old := h.clock.Load(); clock > old && !h.clock.CompareAndSwap(old, clock); old = h.clock.Load() {
	}
}

// serve is the other process.
func serve() error {
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	var mu sync.Mutex // of all below
	handles := map[int]*served{}
	cancels := map[int]context.CancelFunc{}
	for {
		var q question
		if err := in.Decode(&q); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		mu.Lock()
		if q.Verb == "" {
			if cancel := cancels[q.Serial]; cancel != nil {
				cancel()
			}
			mu.Unlock()
			continue
		}
		h := handles[q.Handle]
		ctx, cancel := context.WithCancel(context.Background())
		cancels[q.Serial] = cancel
		mu.Unlock()
		if h != nil {
			h.set(q.Clock)
		}
		go func() {
			var r reply
			switch q.Verb {
			case "open":
				h, err := openServed(q)
				mu.Lock()
				handles[q.Handle] = h
				mu.Unlock()
				r = reply{Err: wrapError(err)}
			case "close":
				r = reply{Err: wrapError(errors.Join(h.store.Close(), h.db.Close()))}
			case "order":
				r = takeOrder(ctx, h.store, q)
			default:
				r = execute(ctx, h.store, q)
			}
			r.Serial = q.Serial
			mu.Lock()
			defer mu.Unlock()
			delete(cancels, q.Serial)
			cancel()
			out.Encode(r) //nolint:errcheck // the other side has gone
		}()
	}
}

func execute(ctx context.Context, s *sqlitestore.Store, q question) reply {
	var r reply
	var rec driver.Record
	var err error
	switch q.Verb {
	case "claim":
		rec, r.Owned, err = s.Claim(ctx, q.ID, q.Claim)
	case "extend":
		r.Owned, err = s.Extend(ctx, q.ID, q.By, q.Extension)
	case "settle":
		rec, r.Owned, err = s.Settle(ctx, q.ID, q.By, q.Outcome)
	case "save step":
		r.Owned, err = s.SaveStep(ctx, q.ID, q.By, q.Name, q.Result)
	case "steps":
		r.Steps, err = s.Steps(ctx, q.ID)
	case "load":
		rec, err = s.Load(ctx, q.ID)
	case "sweep":
		r.N, err = s.Sweep(ctx, q.Limit)
	case "seize":
		rec, err = s.Seize(ctx, q.ID, q.Token)
	case "forget":
		r.Owned, err = s.Forget(ctx, q.ID, q.By)
	case "list":
		err = s.List(ctx, q.Query, func(id driver.ID, rec driver.Record) bool {
			r.Records = append(r.Records, wrapRecord(id, rec))
			return true
		})
	case "count":
		r.Counts, err = s.Count(ctx)
	default:
		err = fmt.Errorf("unknown verb %q", q.Verb)
	}
	r.Err = wrapError(err)
	if q.Verb != "list" {
		r.Records = []wireRecord{wrapRecord(q.ID, rec)}
	}
	return r
}

// takeOrder is an operation that works in the store's database.
func takeOrder(ctx context.Context, s *sqlitestore.Store, q question) reply {
	g, err := semel.New(s, semel.SingleTenant, semel.Hold, semel.Options{Policy: semel.Policy{OneCommit: q.OneCommit}})
	if err != nil {
		return reply{Err: wrapError(err)}
	}
	key := semel.Key{Scope: "shop", Operation: "pay", Value: q.Key}
	_, err = sqlitestore.Do(ctx, g, s, key, semel.Bytes(q.Key), func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES (?)", q.Key)
		return q.Key, err
	})
	return reply{Err: wrapError(err)}
}

// order has the other process take an order.
func (r *remote) order(ctx context.Context, key string, oneCommit bool) error {
	_, err := r.ask(ctx, question{Verb: "order", Key: key, OneCommit: oneCommit})
	return err
}

// A process is another process.
type process struct {
	cmd *exec.Cmd

	mu      sync.Mutex
	out     *gob.Encoder
	serial  int
	waiting map[int]chan reply
	gone    chan struct{} // closed once the process does not answer any more
}

// start starts another process, which ends with the test.
func start(t testing.TB) *process {
	t.Helper()
	exe, err := child.Program()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe, "-test.run=^$"), waiting: map[int]chan reply{}, gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), serverVariable+"=1")
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = gob.NewEncoder(stdin)
	t.Cleanup(func() {
		stdin.Close()
		<-p.gone
		p.cmd.Wait() //nolint:errcheck // it may have been killed
	})
	go func() {
		defer close(p.gone)
		in := gob.NewDecoder(stdout)
		for {
			var a reply
			if in.Decode(&a) != nil {
				return
			}
			p.mu.Lock()
			p.waiting[a.Serial] <- a
			delete(p.waiting, a.Serial)
			p.mu.Unlock()
		}
	}()
	return p
}

// kill ends the process with SIGKILL.
func (p *process) kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.gone
}

var errGone = errors.New("the other process has ended")

func (p *process) ask(ctx context.Context, q question) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	answer := make(chan reply, 1)
	p.mu.Lock()
	p.serial++
	q.Serial = p.serial
	p.waiting[q.Serial] = answer
	err := p.out.Encode(q)
	p.mu.Unlock()
	if err != nil {
		return reply{}, errors.Join(errGone, err)
	}
	ended := ctx.Done()
	for {
		select {
		case a := <-answer:
			if a.Err != nil {
				return a, a.Err
			}
			return a, nil
		case <-p.gone:
			return reply{}, errGone
		case <-ended:
			ended = nil
			p.mu.Lock()
			p.out.Encode(question{Serial: q.Serial}) //nolint:errcheck // gone says so
			p.mu.Unlock()
		}
	}
}

// A remote is a handle in another process.
type remote struct {
	*process
	handle int
	clock  *verbs.Clock // nil: the machine's
}

// openRemote starts a process with a handle on the file.
func openRemote(t testing.TB, path string, c *verbs.Clock) *remote {
	t.Helper()
	return start(t).open(t, path, c)
}

var handles atomic.Int32

// open opens a handle on the file, which is closed with the test.
func (p *process) open(t testing.TB, path string, c *verbs.Clock) *remote {
	t.Helper()
	r := &remote{process: p, handle: int(handles.Add(1)), clock: c}
	if _, err := r.ask(context.Background(), question{Verb: "open", Path: path}); err != nil {
		t.Fatalf("the other process: open: %v", err)
	}
	t.Cleanup(func() {
		if _, err := r.ask(context.Background(), question{Verb: "close"}); err != nil && !errors.Is(err, errGone) {
			t.Errorf("the other process: close: %v", err)
		}
	})
	return r
}

func (r *remote) ask(ctx context.Context, q question) (reply, error) {
	q.Handle = r.handle
	if r.clock != nil {
		q.Clock = r.clock.Now().UnixNano()
	}
	return r.process.ask(ctx, q)
}

// one asks for a verb that answers with one record.
func (r *remote) one(ctx context.Context, q question) (driver.Record, bool, error) {
	a, err := r.ask(ctx, q)
	if err != nil {
		return driver.Record{}, false, err
	}
	rec, err := a.Records[0].record()
	return rec, a.Owned, err
}

func (r *remote) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	return r.one(ctx, question{Verb: "claim", ID: id, Claim: c})
}

func (r *remote) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	_, owned, err := r.one(ctx, question{Verb: "extend", ID: id, By: by, Extension: x})
	return owned, err
}

func (r *remote) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	return r.one(ctx, question{Verb: "settle", ID: id, By: by, Outcome: o})
}

func (r *remote) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	_, owned, err := r.one(ctx, question{Verb: "save step", ID: id, By: by, Name: name, Result: result})
	return owned, err
}

func (r *remote) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	a, err := r.ask(ctx, question{Verb: "steps", ID: id})
	return a.Steps, err
}

func (r *remote) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, _, err := r.one(ctx, question{Verb: "load", ID: id})
	return rec, err
}

func (r *remote) Sweep(ctx context.Context, limit int) (int, error) {
	a, err := r.ask(ctx, question{Verb: "sweep", Limit: limit})
	return a.N, err
}

func (r *remote) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	rec, _, err := r.one(ctx, question{Verb: "seize", ID: id, Token: t})
	return rec, err
}

func (r *remote) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	_, forgot, err := r.one(ctx, question{Verb: "forget", ID: id, By: by})
	return forgot, err
}

func (r *remote) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	a, err := r.ask(ctx, question{Verb: "list", Query: q})
	if err != nil {
		return err
	}
	for _, w := range a.Records {
		rec, err := w.record()
		if err != nil {
			return err
		}
		if !yield(w.ID, rec) {
			return nil
		}
	}
	return nil
}

func (r *remote) Count(ctx context.Context) (driver.Counts, error) {
	a, err := r.ask(ctx, question{Verb: "count"})
	return a.Counts, err
}
