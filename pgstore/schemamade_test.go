package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
)

// A schema that has the number of a version, and not its functions, is refused when it is opened, and not by each verb.
func TestR93_ASchemaThatIsNotWhatItsVersionMakesIsRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]string{
		"a record's field is missing": "ALTER TYPE {schema}.found_1 DROP ATTRIBUTE owed",
		"a table is missing":          "DROP TABLE {schema}.records CASCADE",
	} {
		s := openStore(t, Options{})
		exec(t, s, change)
		again, err := Open(context.Background(), s.app, Options{Schema: s.schema})
		if err == nil {
			again.Close()
		}
		if !errors.Is(err, ErrVersion) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// Each function that a statement calls is looked for, those of the groups and of the outbox included.
func TestR93_ASchemaWithoutAFunctionIsRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	names := s.functions()
	for _, name := range []string{"load_1", "loads_1", "claims_1", "extends_1", "settles_1", "finish_1", "inserted_1", "outbox_lease_1"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not looked for", name)
		}
	}
	for _, name := range names {
		exec(t, s, "ALTER FUNCTION {schema}."+name+" RENAME TO gone")
		again, err := Open(context.Background(), s.app, Options{Schema: s.schema})
		if err == nil {
			again.Close()
		}
		if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: error %v", name, err)
		}
		exec(t, s, "ALTER FUNCTION {schema}.gone RENAME TO "+name)
	}
	openOn(t, s.app, Options{Schema: s.schema})
}

// What the steps take is part of what the store takes.
func TestR56_TheSizeCountsSteps(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	before, err := s.Count(ctx)
	if err != nil {
		t.Fatal(err)
	}
	id := newID()
	rec := claim(t, s, id, ask(driver.Rerun))
	result := make([]byte, 1<<20)
	rand.Read(result)
	saveStep(t, s, id, rec.Owner(), "charge", string(result))
	if n, err := s.Count(ctx); err != nil || n.Bytes-before.Bytes < int64(len(result)) {
		t.Errorf("a step of %d bytes makes %d out of %d; error %v", len(result), n.Bytes, before.Bytes, err)
	}
}
