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
	"github.com/semelhq/semel/sqlitestore"
)

// The test binary serves as another process that has a handle on a file: with this variable set to the file's path it
// executes verbs that come on its standard input. It ends with that.
const serverVariable = "SEMEL_SQLITETEST_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(serverVariable); path != "" {
		if err := serve(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A question is a verb, with its arguments and what the test's clock shows. Verb "" ends the context of an earlier one.
type question struct {
	Serial    int
	Verb      string
	Clock     int64 // in nanoseconds; 0 means the machine's
	ID        semel.ID
	Claim     semel.Claim
	By        semel.Owner
	Extension semel.Extension
	Outcome   semel.Outcome
	Token     semel.Token
	Limit     int
	Query     semel.Query
	Key       string // of an order
	OneCommit bool
}

type reply struct {
	Serial  int
	Records []wireRecord
	Owned   bool
	N       int
	Err     *wireError
}

type wireRecord struct {
	ID   semel.ID
	Data []byte // empty if it is absent
	Now  semel.Time
}

// A wireError keeps what callers ask an error for.
type wireError struct {
	Text  string
	Kinds []int
}

var errorKinds = []error{
	semel.ErrFull, semel.ErrUnreadable, semel.ErrHeld, context.Canceled, context.DeadlineExceeded,
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

func wrapRecord(id semel.ID, rec semel.Record) wireRecord {
	w := wireRecord{ID: id, Now: rec.Now}
	if rec.State != semel.Absent {
		data, err := rec.AppendBinary(nil)
		if err != nil {
			panic(err)
		}
		w.Data = data
	}
	return w
}

func (w wireRecord) record() (rec semel.Record, err error) {
	if len(w.Data) > 0 {
		err = rec.UnmarshalBinary(w.Data)
	}
	rec.Now = w.Now
	return rec, err
}

// serve is the other process.
func serve(path string) error {
	var clock atomic.Int64
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	var hello question
	if err := in.Decode(&hello); err != nil {
		return err
	}
	o := sqlitestore.Options{}
	if hello.Clock != 0 {
		clock.Store(hello.Clock)
		o.Clock = func() time.Time { return time.Unix(0, clock.Load()) }
	}
	db, err := openFile(path, "")
	if err != nil {
		return err
	}
	s, err := sqlitestore.Open(context.Background(), db, o)
	var mu sync.Mutex // of out and cancels
	answer := func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		out.Encode(r) //nolint:errcheck // the other side has gone
	}
	answer(reply{Err: wrapError(err)})
	if err != nil {
		return err
	}
	cancels := map[int]context.CancelFunc{}
	for {
		var q question
		if err := in.Decode(&q); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for old := clock.Load(); q.Clock > old && !clock.CompareAndSwap(old, q.Clock); old = clock.Load() {
		}
		mu.Lock()
		if q.Verb == "" {
			if cancel := cancels[q.Serial]; cancel != nil {
				cancel()
			}
			mu.Unlock()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancels[q.Serial] = cancel
		mu.Unlock()
		go func() {
			var r reply
			if q.Verb == "order" {
				r = takeOrder(ctx, s, q)
			} else {
				r = execute(ctx, s, q)
			}
			mu.Lock()
			delete(cancels, q.Serial)
			mu.Unlock()
			cancel()
			answer(r)
		}()
	}
}

func execute(ctx context.Context, s *sqlitestore.Store, q question) reply {
	r := reply{Serial: q.Serial}
	var rec semel.Record
	var err error
	switch q.Verb {
	case "claim":
		rec, r.Owned, err = s.Claim(ctx, q.ID, q.Claim)
	case "extend":
		r.Owned, err = s.Extend(ctx, q.ID, q.By, q.Extension)
	case "settle":
		rec, r.Owned, err = s.Settle(ctx, q.ID, q.By, q.Outcome)
	case "load":
		rec, err = s.Load(ctx, q.ID)
	case "sweep":
		r.N, err = s.Sweep(ctx, q.Limit)
	case "seize":
		rec, err = s.Seize(ctx, q.ID, q.Token)
	case "forget":
		r.Owned, err = s.Forget(ctx, q.ID, q.By)
	case "list":
		err = s.List(ctx, q.Query, func(id semel.ID, rec semel.Record) bool {
			r.Records = append(r.Records, wrapRecord(id, rec))
			return true
		})
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
		return reply{Serial: q.Serial, Err: wrapError(err)}
	}
	key := semel.Key{Scope: "shop", Value: q.Key}
	_, err = sqlitestore.Do(ctx, g, s, key, semel.Bytes(q.Key), func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES (?)", q.Key)
		return q.Key, err
	})
	return reply{Serial: q.Serial, Err: wrapError(err)}
}

// order has the other process take an order.
func (r *remote) order(ctx context.Context, key string, oneCommit bool) error {
	_, err := r.ask(ctx, question{Verb: "order", Key: key, OneCommit: oneCommit})
	return err
}

// A remote is a handle in another process.
type remote struct {
	cmd   *exec.Cmd
	clock *clock // nil: the machine's

	mu      sync.Mutex
	out     *gob.Encoder
	serial  int
	waiting map[int]chan reply
	gone    chan struct{} // closed once the process does not answer any more
}

// openRemote starts a process with a handle on the file.
func openRemote(t testing.TB, path string, c *clock) *remote {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{cmd: exec.Command(exe, "-test.run=^$"), clock: c, waiting: map[int]chan reply{}, gone: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), serverVariable+"="+path)
	r.cmd.Stderr = os.Stderr
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.out = gob.NewEncoder(stdin)
	t.Cleanup(func() {
		stdin.Close()
		<-r.gone
		r.cmd.Wait() //nolint:errcheck // it may have been killed
	})
	in := gob.NewDecoder(stdout)
	if err := r.out.Encode(question{Clock: r.time()}); err != nil {
		t.Fatal(err)
	}
	var hello reply
	err = in.Decode(&hello)
	go func() {
		defer close(r.gone)
		for {
			var a reply
			if in.Decode(&a) != nil {
				return
			}
			r.mu.Lock()
			r.waiting[a.Serial] <- a
			delete(r.waiting, a.Serial)
			r.mu.Unlock()
		}
	}()
	if err != nil || hello.Err != nil {
		t.Fatalf("the other process: %v, %v", err, hello.Err)
	}
	return r
}

// kill ends the process with SIGKILL.
func (r *remote) kill(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.gone
}

func (r *remote) time() int64 {
	if r.clock == nil {
		return 0
	}
	return r.clock.now().UnixNano()
}

var errGone = errors.New("the other process has ended")

func (r *remote) ask(ctx context.Context, q question) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	answer := make(chan reply, 1)
	r.mu.Lock()
	r.serial++
	q.Serial, q.Clock = r.serial, r.time()
	r.waiting[q.Serial] = answer
	err := r.out.Encode(q)
	r.mu.Unlock()
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
		case <-r.gone:
			return reply{}, errGone
		case <-ended:
			ended = nil
			r.mu.Lock()
			r.out.Encode(question{Serial: q.Serial}) //nolint:errcheck // gone says so
			r.mu.Unlock()
		}
	}
}

// one asks for a verb that answers with one record.
func (r *remote) one(ctx context.Context, q question) (semel.Record, bool, error) {
	a, err := r.ask(ctx, q)
	if err != nil {
		return semel.Record{}, false, err
	}
	rec, err := a.Records[0].record()
	return rec, a.Owned, err
}

func (r *remote) Claim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Record, bool, error) {
	return r.one(ctx, question{Verb: "claim", ID: id, Claim: c})
}

func (r *remote) Extend(ctx context.Context, id semel.ID, by semel.Owner, x semel.Extension) (bool, error) {
	_, owned, err := r.one(ctx, question{Verb: "extend", ID: id, By: by, Extension: x})
	return owned, err
}

func (r *remote) Settle(ctx context.Context, id semel.ID, by semel.Owner, o semel.Outcome) (semel.Record, bool, error) {
	return r.one(ctx, question{Verb: "settle", ID: id, By: by, Outcome: o})
}

func (r *remote) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	rec, _, err := r.one(ctx, question{Verb: "load", ID: id})
	return rec, err
}

func (r *remote) Sweep(ctx context.Context, limit int) (int, error) {
	a, err := r.ask(ctx, question{Verb: "sweep", Limit: limit})
	return a.N, err
}

func (r *remote) Seize(ctx context.Context, id semel.ID, t semel.Token) (semel.Record, error) {
	rec, _, err := r.one(ctx, question{Verb: "seize", ID: id, Token: t})
	return rec, err
}

func (r *remote) Forget(ctx context.Context, id semel.ID, by semel.Owner) (bool, error) {
	_, forgot, err := r.one(ctx, question{Verb: "forget", ID: id, By: by})
	return forgot, err
}

func (r *remote) List(ctx context.Context, q semel.Query, yield func(semel.ID, semel.Record) bool) error {
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
