package pgstore

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/bell"
)

// Options are a store's settings. The zero value is valid.
type Options struct {
	// Schema is the schema of the database that the store's tables and functions are in: 1 to 63 lower-case letters,
	// digits and underscores. Stores with different ones share nothing. Defaults to "semel".
	Schema string

	// NoMigration leaves the schema as it is: Open fails with [ErrVersion] unless it is one that this version of the
	// package can work with. See [Migrations].
	NoMigration bool

	// MaxConns is how many connections the store's own pool has at most. More of them do not make claims and settles
	// faster, since those that come at the same moment share one. Defaults to twice GOMAXPROCS, at least 4.
	MaxConns int32

	// PartitionAnswers keeps answers apart from the records, in a table that is partitioned by the day on which they
	// expire, so that they are dropped by the day instead of one by one. The role must be the owner of the schema's
	// tables. Stores on the same schema may differ in it. Worth it for many or large answers kept for up to a week;
	// those kept for longer are deleted one by one all the same.
	PartitionAnswers bool

	// Notify tells the stores on the same schema of each settle at once, by NOTIFY, instead of leaving that to their
	// polling. It makes commits wait for each other, at a third of the rate. See [Store.Wake].
	Notify bool

	// IdleTimeout is how long a transaction of a handler may be idle between two statements until the server ends it.
	// Defaults to 1 minute; negative means for ever.
	IdleTimeout time.Duration

	// StatementTimeout is how long one statement of a transaction in one-commit mode may take. Defaults to 1 minute;
	// negative means for ever.
	StatementTimeout time.Duration

	// Log gets what an operator should know of, such as partitions that can't be made. Defaults to nobody.
	Log *slog.Logger

	ahead int32 // for how many days after today partitions are made
}

// Store is a [driver.Store] in a PostgreSQL database. It is also a [driver.StepStore], [driver.Seizer],
// [driver.Lister], [driver.Auditor], [driver.Counter] and [driver.Waker]. It is safe for concurrent use. Any number of
// stores, in any number of processes, may be open on one schema.
type Store struct {
	app    *pgxpool.Pool // the application's: business transactions
	pool   *pgxpool.Pool // the store's own: verbs
	schema string
	o      Options // with the defaults filled in
	apart  bool    // answers go into the partitioned table
	notify bool
	log    *slog.Logger
	sql    statements
	kinds  *kindsOfVerbs
	line   line
	pooled atomic.Bool // PgBouncer, or another pooler, stands before the server
	// prepares says that statements which are prepared on a connection of the store's own pool stay there.
	prepares atomic.Bool
	parted   atomic.Int64 // when partitions were seen to last, in seconds since the Unix epoch
	bell     bell.Bell    // rung when there may be messages in the outbox
}

var (
	_ driver.StepStore = (*Store)(nil)
	_ driver.Seizer    = (*Store)(nil)
	_ driver.Lister    = (*Store)(nil)
	_ driver.Auditor   = (*Store)(nil)
	_ driver.Counter   = (*Store)(nil)
	_ driver.Waker     = (*Store)(nil)
)

// statements are the texts that are sent, with the schema's name in them.
type statements struct {
	load, claim, extend, settle, seize, forget, sweep, partition string
	listRange, listLive, listLost, listSealed, listPage          string
	saveStep, steps                                              string
	audit, trail, trailOf                                        string
	count                                                        string
	lock, read, finish, finishAny                                string // of transactions
	outboxAdd, outboxLease, outboxSettle                         string
	outboxRequeue, outboxDrop, outboxClean, outboxStats          string
}

func newStatements(o Options) statements {
	in := func(template string) string { return inSchema(template, o.Schema) }
	return statements{
		load:       in("SELECT {schema}.load_1($1)"),
		claim:      in("SELECT {schema}.claim_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"),
		extend:     in("SELECT {schema}.extend_1($1, $2, $3, $4, $5)"),
		settle:     in("SELECT {schema}.settle_1(" + placeholders(12) + ")"),
		seize:      in("SELECT {schema}.seize_1($1, $2)"),
		forget:     in("SELECT {schema}.forget_1($1, $2, $3)"),
		sweep:      in("SELECT {schema}.sweep_1($1)"),
		partition:  in("SELECT {schema}.partition_1($1)"),
		listRange:  in(listRange),
		listLive:   in(listLive),
		listLost:   in(listLost),
		listSealed: in(listSealed),
		listPage:   in(listPage),
		saveStep:   in("SELECT {schema}.save_step_1($1, $2, $3, $4, $5)"),
		steps:      in(stepsOf),
		audit:      in(insertAudit),
		trail:      in(listAudit),
		trailOf:    in(listAuditOf),
		count:      in(countRecords),
		lock:       in(fmt.Sprintf(lockOperation, milliseconds(o.IdleTimeout), milliseconds(o.StatementTimeout))),
		read:       in("SELECT {schema}.load_1(r.id) FROM {schema}.records r WHERE r.id = $1"),
		finish:     in(insertDone),
		finishAny:  in("SELECT {schema}.finish_1(" + placeholders(28) + ")"),

		outboxAdd:     in("SELECT {schema}.outbox_add_1(" + placeholders(9) + ")"),
		outboxLease:   in(selectEntries + "{schema}.outbox_lease_1(" + placeholders(12) + ") o"),
		outboxSettle:  in("SELECT {schema}.outbox_settle_1(" + placeholders(7) + ")"),
		outboxRequeue: in("SELECT {schema}.outbox_requeue_1($1)"),
		outboxDrop:    in("SELECT {schema}.outbox_drop_1($1)"),
		outboxClean:   in("SELECT {schema}.outbox_clean_1($1)"),
		outboxStats:   in(countMessages),
	}
}

// Open returns a store in the database of app, and makes or migrates its schema. Business transactions come from app.
// The verbs have a small pool of their own, made from app's configuration, so that they never queue behind handlers; it
// sends nothing that a pooler in transaction mode refuses. Close the store when done; app stays open.
//
// Errors wrap [ErrStandby], [ErrVersion], [ErrUnreachable], [ErrDenied] and the like.
func Open(ctx context.Context, app *pgxpool.Pool, o Options) (*Store, error) {
	s, err := open(ctx, app, o)
	if err != nil {
		return nil, fmt.Errorf("open pgstore: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, app *pgxpool.Pool, o Options) (*Store, error) {
	schema := orDefault(o.Schema)
	if err := checkSchema(schema); err != nil {
		return nil, err
	}
	if o.MaxConns < 0 {
		return nil, fmt.Errorf("MaxConns is %d, must be 1 or more, or 0 for the default", o.MaxConns)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ahead == 0 {
		o.ahead = daysAhead
	}
	o.Schema = schema
	o.IdleTimeout = timeout(o.IdleTimeout)
	o.StatementTimeout = timeout(o.StatementTimeout)
	s := &Store{
		app: app, schema: schema, o: o, apart: o.PartitionAnswers, notify: o.Notify, log: o.Log, sql: newStatements(o),
		kinds: newKinds(o),
	}
	s.line.execute = s.executeGroup
	var err error
	if s.pool, err = pgxpool.NewWithConfig(ctx, s.ownConfig(app.Config())); err != nil {
		return nil, interpretError(err)
	}
	s.line.most = int(min(maxTrips, s.pool.Config().MaxConns))
	if err = s.meet(ctx); err == nil {
		err = s.migrate(ctx, !o.NoMigration)
	}
	if err != nil {
		s.pool.Close()
		return nil, interpretError(err)
	}
	s.partition(ctx)
	return s, nil
}

// What a verb does when its context ends. It first leaves the server the time that a verb takes, so that the outcome is
// known and the connection can be used again; nor is then a verb executed after its caller has given up. One that
// waits, for a lock for example, is then cancelled. From a server that does not answer the verb leaves without its
// connection.
//
// Through a pooler nothing is cancelled, because a cancel request ends PgBouncer before 1.19, with all its connections.
// What is left behind on the server waits no longer than the transaction for which it waits.
const (
	cancelAfter = 20 * time.Millisecond
	leaveAfter  = 500 * time.Millisecond
)

// ownConfig makes the configuration of the store's own pool from the application's.
func (s *Store) ownConfig(c *pgxpool.Config) *pgxpool.Config {
	conns := s.o.MaxConns
	if conns == 0 {
		conns = max(4, 2*int32(runtime.GOMAXPROCS(0)))
	}
	c.MaxConns, c.MinConns, c.MinIdleConns = conns, 1, 0
	// What the application does to a connection before and after it works with it is not for this pool. This takes the
	// place of BeforeAcquire too.
	c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
	c.AfterRelease, c.BeforeClose = nil, nil
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		if s.pooled.Load() {
			return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn(), DeadlineDelay: leaveAfter}
		}
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, CancelRequestDelay: cancelAfter, DeadlineDelay: leaveAfter}
	}
	c.ConnConfig.StatementCacheCapacity, c.ConnConfig.DescriptionCacheCapacity = 0, 0
	// The verbs end when their contexts do, and are right at any isolation level, but are made for READ COMMITTED.
	maps.DeleteFunc(c.ConnConfig.RuntimeParams, func(name, _ string) bool {
		return strings.HasPrefix(name, "default_transaction_") || strings.HasSuffix(name, "_timeout")
	})
	return c
}

// timeout returns one in the form of the server, where 0 is none.
func timeout(d time.Duration) time.Duration {
	switch {
	case d == 0:
		return time.Minute
	case d < 0:
		return 0
	}
	return max(d, time.Millisecond)
}

// meet looks at the other end. It fails on a standby, which can't decide anything, and notes whether a pooler stands
// before the server: that has told another process than the server's own. And whether statements can be prepared.
func (s *Store) meet(ctx context.Context) error {
	var standby, pooled, keeps bool
	err := again(ctx, func() error {
		return s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			conn := c.Conn().PgConn()
			err := (&call{sql: "SELECT pg_is_in_recovery(), pg_backend_pid()"}).run(ctx, conn, func(row [][]byte) error {
				standby, pooled = boolOf(row[0]), uint32(int4Of(row[1])) != conn.PID()
				return nil
			})
			if err == nil && pooled {
				keeps, err = keepsPrepared(ctx, conn)
			}
			return err
		})
	})
	switch {
	case err != nil:
		return err
	case standby:
		return ErrStandby
	}
	s.prepares.Store(keeps || !pooled)
	if pooled {
		s.pooled.Store(true)
		s.pool.Reset() // its connections were made for a server
	}
	return nil
}

// Close waits for the verbs under way, and closes the store's own pool. Verbs called later fail with [ErrClosed].
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}
