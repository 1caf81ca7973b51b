package pgstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/outboxtest"
)

// The suite proves R-61 of the outbox and R-83, and what case 30, case 31, case 32 and case 40 ask of it.
func TestOutboxKeepsItsPromisesOverACrashOfTheServer(t *testing.T) {
	own := ownServer(t, servers.PostgresOptions{})
	outboxtest.Run(t, func(t *testing.T) outboxtest.Storage {
		s := outboxStorage(t, own.URL(), OutboxOptions{})
		s.Restart = func(t *testing.T) {
			for _, hurt := range []func() error{own.Pause, own.Resume} {
				if err := hurt(); err != nil {
					t.Fatal(err)
				}
			}
			if err := own.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := own.Start(); err != nil {
				t.Fatal(err)
			}
		}
		return s
	})
}

func outboxStorage(t *testing.T, url string, o OutboxOptions) outboxtest.Storage {
	schema := newSchema()
	clock := mover{pool: newPool(t, url)}
	return outboxtest.Storage{
		Open: func(t *testing.T, common outbox.Options) outbox.Store {
			o := o
			o.Options = common
			return newOutbox(t, openOn(t, newPool(t, url), Options{Schema: schema}), o)
		},
		Begin: func(t *testing.T, s outbox.Store) outboxtest.Tx {
			b := s.(*Outbox)
			tx, err := b.store.app.Begin(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			return &adding{b, tx}
		},
		Advance: func(d time.Duration) { clock.advance(schema, d) },
	}
}

func newOutbox(t testing.TB, s *Store, o OutboxOptions) *Outbox {
	t.Helper()
	b, err := OpenOutbox(context.Background(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// adding is a transaction of the application's.
type adding struct {
	b  *Outbox
	tx pgx.Tx
}

func (a *adding) Add(messages ...outbox.Message) error {
	return a.b.Add(context.Background(), a.tx, messages...)
}

func (a *adding) Commit() error {
	defer a.b.Wake()
	return a.tx.Commit(context.Background())
}

func (a *adding) Rollback() error { return a.tx.Rollback(context.Background()) }

// Behind a pooler, and with everybody at the strictest isolation.
func TestOutboxKeepsItsPromisesBehindPgBouncerAtStricterIsolation(t *testing.T) {
	role := newSchema() // a name that nobody else has
	if _, err := newPool(t, server.URL()).Exec(context.Background(), fmt.Sprintf(`CREATE ROLE %[1]s LOGIN SUPERUSER;
		ALTER ROLE %[1]s SET default_transaction_isolation = 'serializable'`, role)); err != nil {
		t.Fatal(err)
	}
	url := asRole(t, bouncer.URL(), role) + "&default_query_exec_mode=exec"
	outboxtest.Run(t, func(t *testing.T) outboxtest.Storage { return outboxStorage(t, url, OutboxOptions{}) })
}

func pendingIn(t *testing.T, b *Outbox) (ids []string) {
	t.Helper()
	if err := b.List(t.Context(), outbox.Query{State: outbox.Pending}, func(e outbox.Entry) bool {
		if ids = append(ids, e.ID); e.Err != nil {
			t.Error(e.Err)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return ids
}

// rung reports whether a channel of Changed is closed before a minute has passed.
func rung(changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	case <-time.After(time.Minute):
		return false
	}
}

// What a guarded function adds commits with its answer, or not at all, and the relays of the process hear of it.
func TestAMessageIsAddedInTheTransactionOfAnOperation(t *testing.T) {
	t.Parallel()
	for mode, policy := range map[string]semel.Policy{"leased": {}, "one commit": {OneCommit: true}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Options{})
			b := newOutbox(t, s, OutboxOptions{})
			g, err := semel.New(s, semel.SingleTenant, semel.Hold, semel.Options{Policy: policy, IdentitySecret: make([]byte, 32)})
			if err != nil {
				t.Fatal(err)
			}
			changed := b.Changed()
			pay := func(key string, fail error) error {
				_, err := Do(t.Context(), g, s, semel.Key{Scope: "acct-1", Operation: "pay", Value: "payment-" + key}, semel.Bytes(key), func(ctx context.Context, tx pgx.Tx) (int, error) {
					return 7, errors.Join(b.Add(ctx, tx, outbox.Message{ID: key, Topic: "paid"}), fail)
				})
				return err
			}
			broken := errors.New("no money")
			if err := pay("1", broken); !errors.Is(err, broken) {
				t.Fatal(err)
			}
			select {
			case <-changed:
				t.Error("relays were woken by a transaction that was rolled back")
			default:
			}
			for range 2 { // the second time is a replay
				if err := pay("2", nil); err != nil {
					t.Fatal(err)
				}
			}
			if got := pendingIn(t, b); fmt.Sprint(got) != "[2]" {
				t.Errorf("pending: %q", got)
			}
			if !rung(changed) {
				t.Error("relays were not woken by a commit")
			}
		})
	}
}

func TestMessagesAreAddedByDatabaseSQL(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	b := newOutbox(t, s, OutboxOptions{})
	db, err := sql.Open("pgx", server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, commit := range []bool{true, false} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		add := func(m outbox.Message) error { return b.AddSQL(t.Context(), tx, m) }
		if err := add(outbox.Message{ID: fmt.Sprint(commit), Topic: "a", Payload: []byte{0, 255}, Headers: map[string]string{"a": "b"}}); err != nil {
			t.Fatal(err)
		}
		if err := add(outbox.Message{ID: fmt.Sprint(commit, "-bare"), Topic: "a"}); err != nil {
			t.Fatal(err)
		}
		if err := add(outbox.Message{ID: "no topic"}); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("without a topic: %v", err)
		}
		if !commit {
			if err := add(outbox.Message{ID: "true", Topic: "a"}); !errors.Is(err, outbox.ErrDuplicate) {
				t.Errorf("an id that is taken: %v", err)
			}
		}
		end := tx.Commit
		if !commit {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := add(outbox.Message{Topic: "a"}); !errors.Is(err, outbox.ErrNoTx) {
			t.Errorf("after the end: %v", err)
		}
	}
	if err := b.AddSQL(t.Context(), nil, outbox.Message{Topic: "a"}); !errors.Is(err, outbox.ErrNoTx) {
		t.Errorf("without a transaction: %v", err)
	}
	if got := pendingIn(t, b); fmt.Sprint(got) != "[true true-bare]" {
		t.Errorf("pending: %q", got)
	}
}

func TestAddNeedsATransaction(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	b := newOutbox(t, s, OutboxOptions{})
	m := outbox.Message{Topic: "a"}
	ended, err := s.app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ended.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	var kept pgx.Tx
	if err := s.Tx(t.Context(), func(_ context.Context, tx pgx.Tx) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	for why, tx := range map[string]pgx.Tx{"no transaction": nil, "one that has ended": ended, "one of an operation that has ended": kept} {
		if err := b.Add(t.Context(), tx, m); !errors.Is(err, outbox.ErrNoTx) {
			t.Errorf("%s: %v", why, err)
		}
	}
	if got := pendingIn(t, b); len(got) > 0 {
		t.Errorf("pending: %q", got)
	}
}

func TestOtherProcessesAreTold(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	other := openOn(t, newPool(t, server.URL()), Options{Schema: s.schema})
	o := OutboxOptions{Notify: true}
	b, there := newOutbox(t, s, o), newOutbox(t, other, o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	listening := there.Changed()
	go func() { ended <- there.Listen(ctx) }()
	if !rung(listening) {
		t.Fatal("it does not listen")
	}
	changed := there.Changed()
	if err := s.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error { return b.Add(ctx, tx, outbox.Message{Topic: "a"}) }); err != nil {
		t.Fatal(err)
	}
	if !rung(changed) {
		t.Error("nobody was told")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of Listen: %v", err)
	}
	if err := newOutbox(t, s, OutboxOptions{}).Listen(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without Notify: %v", err)
	}
}

func TestOutboxOptionsAndSchemaAreChecked(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for why, o := range map[string]outbox.Options{"a negative payload": {MaxPayload: -1}, "a negative time": {Keep: -1}} {
		if _, err := OpenOutbox(t.Context(), s, OutboxOptions{Options: o}); err == nil {
			t.Errorf("%s is accepted", why)
		}
	}
	exec(t, s, "DROP FUNCTION {schema}.outbox_settle_1")
	if _, err := OpenOutbox(t.Context(), s, OutboxOptions{}); !errors.Is(err, ErrSchema) {
		t.Errorf("a schema without an outbox: %v", err)
	}
}

// A lease reads no more for the hundred thousand messages of a lane that is paused, skipped, or not due.
func TestCase31_ALeaseDoesNotReadWhatWaits(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	newOutbox(t, s, OutboxOptions{})
	exec(t, s, `INSERT INTO {schema}.outbox (since, not_before, due, lease_end, ended, attempts, state, holds, sealed, id, topic, key, tenant, error, payload)
		SELECT 1, d.due, d.due, 0, 0, 0, 1, false, false, d.topic || i, d.topic, i::text, '', '', ''
		FROM (VALUES ('paused', 0), ('later', 9000000000000000000), ('well', 0)) d(topic, due), generate_series(1, 50000) i
		WHERE d.topic <> 'well' OR i <= 10`)
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// The server makes its plans the first time, and again when it has analyzed the table, and reads for that too.
	least := math.MaxInt
	for range 5 {
		var text []byte
		if err := conn.QueryRow(t.Context(), inSchema(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM
			{schema}.outbox_lease_1('\x00', 0, '', '', 10, 100, 100, 1000, '{}', '{paused}', '{""}', '{0}')`, s.schema)).Scan(&text); err != nil {
			t.Fatal(err)
		}
		var all []struct {
			Plan struct {
				Rows int `json:"Actual Rows"`
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		p := all[0].Plan
		if p.Rows != 10 {
			t.Errorf("%d messages were leased, want 10", p.Rows)
		}
		least = min(least, p.Hit+p.Read)
	}
	if least > 300 {
		t.Errorf("%d blocks were read", least)
	}
}

// Of those who look at a lane at the same moment one leases of it, and the others go on to other lanes. Whoever dies while
// it looks keeps nobody off.
func TestOneLooksAtALaneAtATime(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	b := newOutbox(t, s, OutboxOptions{})
	tx, err := s.app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a1", "a2", "a3", "b1"} {
		if err := b.Add(t.Context(), tx, outbox.Message{ID: id, Topic: id[:1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := func() (ids []string, err error) {
		q := outbox.LeaseRequest{Token: driver.NewToken(), Lease: time.Minute, Lanes: 10, Limit: 10, Max: 10, Bytes: 1000}
		all, err := b.Lease(t.Context(), q)
		for _, e := range all {
			ids = append(ids, e.ID)
		}
		return ids, err
	}
	other, err := s.app.Begin(t.Context()) // looks at the first lane, and leases one message
	if err != nil {
		t.Fatal(err)
	}
	var looked int
	look := inSchema(`SELECT count(*) FROM {schema}.outbox_lease_1(
		'\x00', 60000000000, '', '', 1, 1, 1, 1000, '{}', '{}', '{}', '{}')`, s.schema)
	if err := other.QueryRow(t.Context(), look).Scan(&looked); err != nil || looked != 1 {
		t.Fatalf("the other leased %d messages, error %v", looked, err)
	}
	if got, err := found(); err != nil || !slices.Equal(got, []string{"b1"}) {
		t.Errorf("beside the other it leased %q, error %v", got, err)
	}
	if got, err := found(); len(got) > 0 || !errors.Is(err, outbox.ErrBusy) {
		t.Errorf("of the other's lane it leased %q, error %v", got, err)
	}
	pid := other.Conn().PgConn().PID()
	exec(t, s, "SELECT pg_terminate_backend($1)", int32(pid))
	for value[int](t, s, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", int32(pid)) > 0 {
		time.Sleep(time.Millisecond)
	}
	if got, err := found(); err != nil || !slices.Equal(got, []string{"a1", "a2", "a3"}) {
		t.Errorf("after the other's end it leased %q, error %v", got, err)
	}
	if got, err := found(); err != nil || len(got) > 0 {
		t.Errorf("when all was leased it leased %q, error %v", got, err)
	}
	other.Rollback(context.Background()) //nolint:errcheck // its connection is gone
}

// Logical decoding sees each insert with the columns that docs/messages.md names, so that Debezium can read them.
func TestCDCSeesWhatIsAdded(t *testing.T) {
	t.Parallel()
	own := ownServer(t, servers.PostgresOptions{Settings: map[string]string{"wal_level": "logical"}})
	s := openOn(t, newPool(t, own.URL()), Options{})
	b := newOutbox(t, s, OutboxOptions{})
	exec(t, s, "SELECT pg_create_logical_replication_slot('cdc', 'test_decoding')")
	m := outbox.Message{ID: "m-1", Topic: "orders", Key: "o-7", Tenant: "t", Payload: []byte("hi"), Headers: map[string]string{"a": "b"}}
	if err := s.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error { return b.Add(ctx, tx, m) }); err != nil {
		t.Fatal(err)
	}
	insert := value[string](t, s, `SELECT string_agg(data, E'\n') FROM pg_logical_slot_get_changes('cdc', NULL, NULL) WHERE data LIKE '%outbox: INSERT%'`)
	for _, column := range []string{
		"id[text]:'m-1'", "topic[text]:'orders'", "key[text]:'o-7'", "tenant[text]:'t'", `payload[bytea]:'\x6869'`,
		`headers[bytea]:'\x7b2261223a2262227d'`, "since[bigint]:",
	} {
		if !strings.Contains(insert, column) {
			t.Errorf("the log lacks %s: %s", column, insert)
		}
	}
	if got := value[string](t, s, `SELECT concat_ws(' ', id, aggregatetype, aggregateid, type, convert_from(payload, 'UTF8'), tenant, headers, timestamp > now() - interval '1 hour')
		FROM {schema}.outbox_events`); got != `m-1 orders o-7 orders hi t {"a": "b"} t` {
		t.Errorf("the view shows %s", got)
	}
}
