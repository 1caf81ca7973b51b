package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
)

var everyKind = []error{
	ErrUnreachable, ErrStarting, ErrShutdown, ErrTooMany, ErrStandby, ErrReadOnly, ErrDiskFull, ErrSerialization, ErrDeadlock,
	ErrTimeout, ErrDenied, ErrSchema, ErrVersion, ErrCorrupt, ErrEnded, ErrClosed,
}

// isKind checks that an error is of one kind and no other.
func isKind(t *testing.T, what string, err, want error) {
	t.Helper()
	for _, kind := range everyKind {
		if is := errors.Is(err, kind); is != (kind == want) {
			t.Errorf("%s: %v: is %q: %t", what, err, kind, is)
		}
	}
}

func TestErrorsGetTheSentinelOfTheirKind(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		want error
	}{
		{&pgconn.PgError{Code: "57P03"}, ErrStarting},
		{&pgconn.PgError{Code: "57P01"}, ErrShutdown},
		{&pgconn.PgError{Code: "57P02"}, ErrShutdown},
		{&pgconn.PgError{Code: "53300"}, ErrTooMany},
		{&pgconn.PgError{Code: "08P01", Message: "no more connections allowed (max_client_conn)"}, ErrTooMany},
		{&pgconn.PgError{Code: "08P01", Message: "server conn crashed?"}, ErrUnreachable},
		{&pgconn.PgError{Code: "08006"}, ErrUnreachable},
		{&pgconn.PgError{Code: "25006"}, ErrReadOnly},
		{&pgconn.PgError{Code: "53100"}, ErrDiskFull},
		{&pgconn.PgError{Code: "40001"}, ErrSerialization},
		{&pgconn.PgError{Code: "40P01"}, ErrDeadlock},
		{&pgconn.PgError{Code: "57014"}, ErrTimeout},
		{&pgconn.PgError{Code: "55P03"}, ErrTimeout},
		{&pgconn.PgError{Code: "42501"}, ErrDenied},
		{&pgconn.PgError{Code: "28P01"}, ErrDenied},
		{&pgconn.PgError{Code: "28000"}, ErrDenied},
		{&pgconn.PgError{Code: "42P01"}, ErrSchema},
		{&pgconn.PgError{Code: "3F000"}, ErrSchema},
		{&pgconn.PgError{Code: "42883"}, ErrSchema},
		{&pgconn.PgError{Code: "XX001"}, ErrCorrupt},
		{&pgconn.PgError{Code: "42601"}, nil},
		{&pgconn.PgError{Code: "0"}, nil},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, ErrUnreachable},
		{io.ErrUnexpectedEOF, ErrUnreachable},
		{context.DeadlineExceeded, nil},
		{context.Canceled, nil},
		{errors.New("something else"), nil},
	} {
		got := interpretError(fmt.Errorf("wrapped: %w", row.err))
		if !errors.Is(got, row.err) {
			t.Errorf("%v: the driver's error is lost in %v", row.err, got)
		}
		isKind(t, "made up", got, row.want)
		if again := interpretError(got); again.Error() != got.Error() {
			t.Errorf("interpreted twice it is %v", again)
		}
	}
	if err := interpretError(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	full := noRoom(noRoom(interpretError(&pgconn.PgError{Code: "53100"})))
	if !errors.Is(full, driver.ErrFull) || !errors.Is(full, ErrDiskFull) {
		t.Errorf("%v; want both sentinels", full)
	}
	if err := noRoom(interpretError(&pgconn.PgError{Code: "25006"})); errors.Is(err, driver.ErrFull) {
		t.Errorf("%v passes for a full disk", err)
	}
}

// deadAddress is one where nobody listens: its port is given to nobody who asks for a free one.
const deadAddress = "127.0.0.1:1"

// opening tries to open a store at an address.
func opening(t *testing.T, address string, o Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if o.Schema == "" {
		o.Schema = newSchema()
	}
	s, err := Open(ctx, newPool(t, address), o)
	if err == nil {
		s.Close()
	}
	return err
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	isKind(t, "open", opening(t, "postgres://postgres@"+deadAddress+"/postgres?sslmode=disable", Options{}), ErrUnreachable)
}

func TestNoErrorHasThePassword(t *testing.T) {
	t.Parallel()
	own := ownServer(t, servers.PostgresOptions{})
	for _, address := range []string{deadAddress, own.Addr()} {
		for _, database := range []string{"postgres", "nothing"} {
			for _, role := range []string{"nobody", "postgres"} {
				err := opening(t, "postgres://"+role+":sesame-open@"+address+"/"+database+"?sslmode=disable", Options{Schema: "semel", NoMigration: true})
				if err == nil {
					t.Errorf("%s, %s, %s: no error", address, database, role)
				} else if strings.Contains(err.Error(), "sesame") {
					t.Errorf("the password is in: %v", err)
				}
			}
		}
	}
}

func TestAccessIsDenied(t *testing.T) {
	t.Parallel()
	isKind(t, "no such role", opening(t, asRole(t, server.URL(), "nobody"), Options{}), ErrDenied)
	s := openStore(t, Options{})
	exec(t, s, `DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	isKind(t, "no privilege", opening(t, asRole(t, server.URL(), "guest"), Options{Schema: s.schema}), ErrDenied)
}

func TestTheDatabaseOrSchemaIsMissing(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/nothing"
	isKind(t, "no such database", opening(t, u.String(), Options{}), ErrSchema)
	s := openStore(t, Options{})
	exec(t, s, "DROP SCHEMA {schema} CASCADE")
	_, _, err = s.Claim(context.Background(), newID(), ask(driver.Hold))
	isKind(t, "the schema was dropped", err, ErrSchema)
}

func TestTheServerTakesNoMoreConnections(t *testing.T) {
	own := ownServer(t, servers.PostgresOptions{Settings: map[string]string{"max_connections": "4", "superuser_reserved_connections": "0", "max_wal_senders": "0"}})
	for range 4 {
		conn, err := pgx.Connect(context.Background(), own.URL())
		// Who has looked whether the server answers may be just leaving.
		for end := time.Now().Add(time.Minute); errors.Is(interpretError(err), ErrTooMany) && time.Now().Before(end); {
			conn, err = pgx.Connect(context.Background(), own.URL())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background()) //nolint:errcheck // the server ends with the test
	}
	isKind(t, "open", opening(t, own.URL(), Options{}), ErrTooMany)
}

func TestTheServerIsReadOnly(t *testing.T) {
	own := ownServer(t, servers.PostgresOptions{})
	s := openOn(t, newPool(t, own.URL()), Options{})
	id, c := newID(), ask(driver.Hold)
	rec := claim(t, s, id, c)
	rec = settle(t, s, id, rec.Owner(), done("kept"))

	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := own.StartInRecovery(); err != nil {
		t.Fatal(err)
	}
	isKind(t, "open a standby", opening(t, own.URL(), Options{Schema: s.schema}), ErrStandby)
	reachable(t, s)
	_, _, err := s.Claim(context.Background(), newID(), ask(driver.Hold))
	isKind(t, "claim", err, ErrReadOnly)
	c.Token = driver.NewToken()
	again, owned, err := s.Claim(context.Background(), id, c)
	if owned || err != nil || string(again.Response.Body) != "kept" || again.Fence != rec.Fence {
		t.Errorf("a replay on a standby: owned is %t, error %v", owned, err)
	}
}

// reachable waits until a store that has lost its connections has some again.
func reachable(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		_, err := s.Load(ctx, newID())
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the store does not come back: %v", err)
		}
	}
}

func TestTheServerStarts(t *testing.T) {
	own := ownServer(t, servers.PostgresOptions{})
	s := openOn(t, newPool(t, own.URL()), Options{})
	// A server that is recovering accepts connections late, if at all; whatever comes meanwhile is one of these.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs := make(chan error, 1)
	started := make(chan struct{})
	if err := own.Kill(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			_, err := s.Load(ctx, newID())
			if err == nil || !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrStarting) && !errors.Is(err, ErrShutdown) {
				errs <- err
				return
			}
		}
	}()
	go func() {
		defer close(started)
		if err := own.Start(); err != nil {
			t.Error(err)
		}
	}()
	<-started
	if err := <-errs; err != nil {
		t.Errorf("while the server starts: %v", err)
	}
}

func TestAnAdministratorEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{MaxConns: 1})
	ctx := context.Background()
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	tx := begin(t, s, pgx.TxOptions{})
	txValue[int](t, s, tx, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE", id[:])
	errs := make(chan error)
	go func() {
		_, _, err := s.Settle(ctx, id, rec.Owner(), done(""))
		errs <- err
	}()
	waiter := waitsForLock(t, s, tx)
	txValue[bool](t, s, tx, "SELECT pg_terminate_backend($1)", waiter)
	isKind(t, "settle", <-errs, ErrShutdown)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	settle(t, s, id, rec.Owner(), done(""))
}

// waitsForLock waits until a backend waits for the transaction, and returns its process id.
func waitsForLock(t *testing.T, s *Store, tx pgx.Tx) int {
	t.Helper()
	for giveUp := time.Now().Add(time.Minute); time.Now().Before(giveUp); {
		pid := txValue[int](t, s, tx, "SELECT coalesce(min(pid), 0) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))")
		if pid != 0 {
			return pid
		}
	}
	t.Fatal("nobody waits")
	return 0
}

func TestTheServerCancelsTheStatement(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	exec(t, s, "CREATE ROLE hasty_"+s.schema+" LOGIN SUPERUSER")
	t.Cleanup(func() { exec(t, s, "DROP ROLE hasty_"+s.schema) })
	exec(t, s, "ALTER ROLE hasty_"+s.schema+" SET lock_timeout = '50ms'")
	hasty := openOn(t, newPool(t, asRole(t, server.URL(), "hasty_"+s.schema)), Options{Schema: s.schema})
	tx := begin(t, s, pgx.TxOptions{})
	txValue[int](t, s, tx, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE", id[:])
	_, _, err := hasty.Settle(context.Background(), id, rec.Owner(), done(""))
	isKind(t, "settle", err, ErrTimeout)
}

// A cancel request may come so late that it hits the next verb on the connection. A second one is meant.
func TestAVerbThatIsCancelledByMistakeIsSentAgain(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	tx := begin(t, s, pgx.TxOptions{})
	txValue[int](t, s, tx, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE", id[:])
	settled := make(chan error, 1)
	settling := func() {
		_, owned, err := s.Settle(context.Background(), id, rec.Owner(), done("x"))
		if err == nil && !owned {
			err = errors.New("it was refused to the owner")
		}
		settled <- err
	}
	// cancel cancels the statement that waits, and returns when it was sent.
	cancel := func() (sent time.Time) {
		pid := waitsForLock(t, s, tx)
		sent = value[time.Time](t, s, "SELECT query_start FROM pg_stat_activity WHERE pid = $1", pid)
		value[bool](t, s, "SELECT pg_cancel_backend($1)", pid)
		return sent
	}
	waitsSince := func(sent time.Time) {
		for end := time.Now().Add(time.Minute); !time.Now().After(end); {
			if value[time.Time](t, s, "SELECT query_start FROM pg_stat_activity WHERE pid = $1", waitsForLock(t, s, tx)).After(sent) {
				return
			}
		}
		t.Fatal("it is not sent again")
	}
	go settling()
	waitsSince(cancel())
	cancel()
	isKind(t, "cancelled twice", <-settled, ErrTimeout)

	go settling()
	waitsSince(cancel())
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Errorf("cancelled once: %v", err)
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Load(context.Background(), newID())
	isKind(t, "load", err, ErrClosed)
}

// Two transactions that each wait for the other's record: the server ends one.
func TestADeadlockAndASerializationFailure(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	var ids [2]driver.ID
	var recs [2]driver.Record
	var txs [2]pgx.Tx
	for i := range ids {
		ids[i] = newID()
		recs[i] = claim(t, s, ids[i], ask(driver.Hold))
		txs[i] = begin(t, s, pgx.TxOptions{})
	}
	settleIn := func(tx pgx.Tx, i int) error {
		c, err := s.settleCall(ids[i], recs[i].Owner(), done(""), false)
		if err != nil {
			return err
		}
		return interpretError(c.run(ctx, tx.Conn().PgConn(), nil))
	}
	for i := range txs {
		if err := settleIn(txs[i], i); err != nil {
			t.Fatal(err)
		}
	}
	errs := make(chan error, 2)
	for i := range txs {
		go func() {
			err := settleIn(txs[i], 1-i)
			if err != nil {
				txs[i].Rollback(ctx) //nolint:errcheck // it is over
			}
			errs <- err
		}()
	}
	a, b := <-errs, <-errs
	if a == nil {
		a, b = b, a
	}
	isKind(t, "the one that was ended", a, ErrDeadlock)
	if b != nil {
		t.Errorf("the other one: %v", b)
	}

	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	tx := begin(t, s, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	txValue[int](t, s, tx, "SELECT 1")
	settle(t, s, id, rec.Owner(), done(""))
	c, err := s.settleCall(id, rec.Owner(), done(""), false)
	if err != nil {
		t.Fatal(err)
	}
	isKind(t, "a change since the snapshot", interpretError(c.run(ctx, tx.Conn().PgConn(), nil)), ErrSerialization)
}

// PgBouncer's own words for it.
func TestThePoolerTakesNoMoreConnections(t *testing.T) {
	t.Parallel()
	pool, err := servers.NewPgBouncer(server, servers.PgBouncerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	s := openOn(t, newPool(t, pool.URL()), Options{})
	admin, err := url.Parse(pool.URL())
	if err != nil {
		t.Fatal(err)
	}
	admin.Path = "/pgbouncer"
	config, err := pgx.ParseConfig(admin.String())
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	console, err := pgx.ConnectConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close(context.Background()) //nolint:errcheck // as above
	if _, err := console.Exec(context.Background(), "SET max_client_conn = 1"); err != nil {
		t.Fatal(err)
	}
	isKind(t, "open", opening(t, pool.URL(), Options{Schema: s.schema}), ErrTooMany)
}

// A full disk is made up by a trigger; its error is the server's.
func TestAFullDiskIsAFullStore(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	exec(t, s, `CREATE FUNCTION {schema}.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.state = 1 OR NEW.answer IS NOT NULL THEN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END IF;
		RETURN NEW;
	END $$`)
	exec(t, s, "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {schema}.records FOR EACH ROW EXECUTE FUNCTION {schema}.full()")
	_, owned, err := s.Claim(ctx, newID(), ask(driver.Hold))
	if owned || !errors.Is(err, driver.ErrFull) {
		t.Errorf("claim: %t, %v", owned, err)
	}
	isKind(t, "claim", err, ErrDiskFull)
	_, owned, err = s.Settle(ctx, id, rec.Owner(), done("large"))
	if owned || !errors.Is(err, driver.ErrFull) {
		t.Errorf("settle: %t, %v", owned, err)
	}
	settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Done}) // a marker fits
}
