package sqlitetest

import (
	"context"
	"errors"
	"testing"

	"github.com/semelhq/semel/sqlitestore"
)

// A schema that has the number of a version, and not its tables, is refused when it is opened, and not by each verb.
func TestR93_ASchemaThatIsNotWhatItsVersionMakesIsRefused(t *testing.T) {
	t.Parallel()
	for what, changes := range map[string][]string{
		"a column is missing": {"DROP INDEX semel_records_sealed", "ALTER TABLE semel_records DROP COLUMN sealed"},
		"a table is missing":  {"DROP TRIGGER semel_records_deleted", "DROP TABLE semel_steps"},
	} {
		path := newFile(t)
		s, db := openStore(t, path, sqlitestore.Options{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, change := range changes {
			execSQL(t, db, change)
		}
		again, err := sqlitestore.Open(context.Background(), openDB(t, path, ""), sqlitestore.Options{})
		if err == nil {
			again.Close()
		}
		if !errors.Is(err, sqlitestore.ErrVersion) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}
