// Package layers holds the rooms of the house in their order: a package imports those of lower floors only.
package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/semelhq/semel"

// floors are the folders that others import, from the ground up. A folder below one that is listed belongs to it.
// Packages of one floor know nothing of each other.
var floors = [][]string{
	{
		"refusal", "history", "js", "internal/bell", "internal/brake", "internal/certsubject", "internal/command",
		"internal/correlation", "internal/defaults", "internal/httpdate", "internal/lazyctx", "internal/migration",
		"internal/network", "internal/npm", "internal/operationstatus", "internal/pause", "internal/prefer",
		"internal/proof", "internal/servers", "internal/settings", "internal/slab", "internal/structuredfield",
		"internal/thrown", "internal/wire", "pgstore/internal/composite", "pgstore/internal/sqltext",
	},
	{"driver", "internal/child", "internal/keyformat", "internal/problemkind"},
	{"event", "keyring", "internal/digest", "internal/budget", "internal/rounds", "internal/verbs", "memstore", "redisstore", "shardstore", "tieredstore", "storetest"},
	{"internal/requestbody", "outbox"},
	{"internal/fingerprint", "internal/engine", "internal/answer", "outbox/outboxtest"},
	{"internal/credentials", "internal/storedrequest", "identity"},
	{"."},
	{"consumer"},
	{"admin", "batch", "client", "outbox/webhook", "semeltest", "sqlitestore", "pgstore", "semelecho", "semelgin", "semelfiber", "semelwatermill"},
	{"saga"},
	{"internal/frameworktest", "semeltemporal", "semeltemporal/internal/ledger"},
}

// wired are the folders that put the others together. Nobody imports them but they themselves.
var wired = []string{"bench", "cmd", "examples", "internal/docs", "internal/layers", "internal/noskip", "internal/rules", "tools", "verify"}

func TestRoomsLookDownOnly(t *testing.T) {
	t.Parallel()
	floor := map[string]int{}
	for n, rooms := range floors {
		for _, room := range rooms {
			floor[room] = n
		}
	}
	seen := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		folder, err := filepath.Rel("../..", filepath.Dir(path))
		if err != nil {
			return err
		}
		from := filepath.ToSlash(folder)
		if within(wired, from) != "" {
			return nil
		}
		own, known := floor[from]
		if !known {
			t.Errorf("%s stands on no floor", from)
			return nil
		}
		seen[from] = true
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			to, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			if to = strings.TrimPrefix(to, "/"); to == "" {
				to = "."
			}
			if at, known := floor[to]; !known || at >= own {
				t.Errorf("%s imports %s, which is not below %s", filepath.ToSlash(path), to, from)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for room := range floor {
		if !seen[room] {
			t.Errorf("%s has no Go file", room)
		}
	}
}

// within returns the folder of the list that path is, or is below; "" for none.
func within(list []string, path string) string {
	for _, folder := range list {
		if path == folder || strings.HasPrefix(path, folder+"/") {
			return folder
		}
	}
	return ""
}
