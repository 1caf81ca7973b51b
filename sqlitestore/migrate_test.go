package sqlitestore

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// The nth script has the number n in its name and makes version n; a gap would let Open run one twice, or never.
func TestMigrationsAreNumbered(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrationFiles, "migrations/*")
	if err != nil || len(names) != len(migrations) || len(names) == 0 {
		t.Fatalf("%d scripts in %q, %v", len(migrations), names, err)
	}
	for i, name := range names {
		if want := fmt.Sprintf("migrations/%04d_", i+1); !strings.HasPrefix(name, want) {
			t.Errorf("%s, want %s…", name, want)
		}
		sets := regexp.MustCompile(`semel_meta .*version.* VALUES \(1, 1,|UPDATE semel_meta SET version = (\d+)`)
		if got := sets.FindStringSubmatch(migrations[i].SQL); got == nil || i > 0 && got[1] != fmt.Sprint(i+1) {
			t.Errorf("%s does not set version %d", name, i+1)
		}
	}
	for from, want := range map[int]int{-1: len(names), 0: len(names), len(names) - 1: 1, len(names): 0, len(names) + 1: 0} {
		if left, err := fs.Glob(Migrations(from), "*"); len(left) != want || err != nil {
			t.Errorf("after version %d: %q, %v", from, left, err)
		}
	}
}
