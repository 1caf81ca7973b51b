package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

func TestSchemaNamesAreChecked(t *testing.T) {
	t.Parallel()
	app := newPool(t, server.URL())
	for _, name := range []string{"Semel", "semel-1", "1semel", `se"mel`, "se mel", "pg_semel", "semél", "a234567890123456789012345678901234567890123456789012345678901234"} {
		if s, err := Open(context.Background(), app, Options{Schema: name}); err == nil {
			s.Close()
			t.Errorf("%q is accepted", name)
		}
		if _, err := Version(context.Background(), app, name); err == nil {
			t.Errorf("%q has a version", name)
		}
	}
	// A word of the language is a name like any other.
	s := openStore(t, Options{Schema: "select"})
	id := newID()
	claim(t, s, id, ask(driver.Hold))
	if rec := load(t, s, id); rec.State != driver.Running {
		t.Errorf("the record is %v", rec.State)
	}
}

func TestTheFilesMakeTheSchema(t *testing.T) {
	t.Parallel()
	ctx, schema := context.Background(), newSchema()
	app := newPool(t, server.URL())
	o := Options{Schema: schema, NoMigration: true}
	if _, err := Open(ctx, app, o); !errors.Is(err, ErrVersion) {
		t.Fatalf("without a schema, and told not to make it: %v", err)
	}
	if v, err := Version(ctx, app, schema); v != 0 || err != nil {
		t.Fatalf("version is %d, error %v", v, err)
	}
	files := Migrations(schema, 0)
	names, err := fs.Glob(files, "*")
	if err != nil || len(names) != Latest() {
		t.Fatalf("the files are %q, error %v; want %d", names, err, Latest())
	}
	for i, name := range names {
		sql, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := app.Exec(ctx, string(sql)); err != nil {
			t.Fatal(err)
		}
		// A gap, or a version that is not the number, would let Open run one twice, or never.
		if v, err := Version(ctx, app, schema); v != i+1 || err != nil || !strings.HasPrefix(name, fmt.Sprintf("%04d_", i+1)) {
			t.Errorf("after %s the version is %d, error %v", name, v, err)
		}
	}
	for from, want := range map[int]int{-1: Latest(), Latest() - 1: 1, Latest(): 0, Latest() + 1: 0} {
		if names, err := fs.Glob(Migrations(schema, from), "*"); len(names) != want || err != nil {
			t.Errorf("after version %d: %q, error %v", from, names, err)
		}
	}
	s := openOn(t, app, o)
	claim(t, s, newID(), ask(driver.Hold))
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	schema := newSchema()
	var all sync.WaitGroup
	start := make(chan struct{})
	errs := make(chan error, 8)
	for i := range cap(errs) {
		url := server.URL()
		if i%2 == 0 {
			url = bouncer.URL()
		}
		app := newPool(t, url)
		all.Go(func() {
			<-start
			s, err := Open(context.Background(), app, Options{Schema: schema})
			if err == nil {
				_, err = s.Load(context.Background(), newID())
				s.Close()
			}
			errs <- err
		})
	}
	close(start)
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

// Two adjacent versions run on one schema, if the later one says that this is possible.
func TestR93_ALaterSchemaSaysWhoCanUseIt(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for _, row := range []struct {
		version, readable int
		opens             bool
	}{
		{Latest() + 1, Latest(), true},
		{Latest() + 1, Latest() + 1, false},
	} {
		exec(t, s, "UPDATE {schema}.meta SET version = $1, readable = $2", row.version, row.readable)
		again, err := Open(context.Background(), s.app, Options{Schema: s.schema})
		if err == nil {
			again.Close()
		}
		if (err == nil) != row.opens || err != nil && !errors.Is(err, ErrVersion) {
			t.Errorf("version %d, readable from %d on: %v", row.version, row.readable, err)
		}
	}
}

// A role that is not allowed to make schemas can use one that was made for it.
func TestARoleNeedsNoMoreThanTheTables(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	exec(t, s, `DO $$ BEGIN CREATE ROLE clerk LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	exec(t, s, "GRANT USAGE ON SCHEMA {schema} TO clerk")
	exec(t, s, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO clerk")
	exec(t, s, "GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO clerk")
	clerk := openOn(t, newPool(t, asRole(t, server.URL(), "clerk")), Options{Schema: s.schema})
	id := newID()
	rec := claim(t, clerk, id, ask(driver.Hold))
	if owned, err := clerk.Extend(context.Background(), id, rec.Owner(), driver.Extension{}); !owned || err != nil {
		t.Errorf("extend: %t, %v", owned, err)
	}
	saveStep(t, clerk, id, rec.Owner(), "charge", "paid")
	settle(t, clerk, id, rec.Owner(), done("ok"))
	if forgot, err := clerk.Forget(context.Background(), id, rec.Owner()); !forgot || err != nil {
		t.Errorf("forget: %t, %v", forgot, err)
	}
	if _, err := clerk.Sweep(context.Background(), 10); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if err := clerk.Audit(context.Background(), driver.AuditEntry{ID: id}); err != nil {
		t.Errorf("audit: %v", err)
	}
	if _, err := clerk.Count(context.Background()); err != nil {
		t.Errorf("count: %v", err)
	}
	b := newOutbox(t, clerk, OutboxOptions{})
	if err := clerk.Tx(context.Background(), func(ctx context.Context, tx pgx.Tx) error {
		return b.Add(ctx, tx, outbox.Message{ID: "1", Topic: "a"})
	}); err != nil {
		t.Errorf("add: %v", err)
	}
	if all, err := b.Lease(context.Background(), outbox.LeaseRequest{Lanes: 1, Limit: 1, Max: 1, Bytes: 1}); len(all) != 1 || err != nil {
		t.Errorf("lease: %d messages, %v", len(all), err)
	}
	if n, err := b.Drop(context.Background(), "1"); n != 1 || err != nil {
		t.Errorf("drop: %d, %v", n, err)
	}
	if _, err := Open(context.Background(), clerk.app, Options{Schema: newSchema()}); !errors.Is(err, ErrDenied) {
		t.Errorf("making a schema: %v", err)
	}
}

// A role that owns a schema migrates it without being allowed to make one.
func TestARoleMigratesASchemaThatIsThere(t *testing.T) {
	t.Parallel()
	ctx, schema := context.Background(), newSchema()
	app := newPool(t, server.URL())
	for _, sql := range []string{
		`DO $$ BEGIN CREATE ROLE carpenter LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`,
		"CREATE SCHEMA " + pgx.Identifier{schema}.Sanitize() + " AUTHORIZATION carpenter",
	} {
		if _, err := app.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	s := openOn(t, newPool(t, asRole(t, server.URL(), "carpenter")), Options{Schema: schema})
	claim(t, s, newID(), ask(driver.Hold))
}
