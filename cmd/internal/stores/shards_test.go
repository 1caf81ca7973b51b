package stores

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/shardstore"
)

func writeShards(t *testing.T, text string) (address string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "shards.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "shards://" + name
}

// A file of shards names one store. Its operations are in all of them, and stay there when the next step is opened.
func TestAFileOfShardsNamesAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shard := func(name, marks string) string {
		return fmt.Sprintf("  - {name: %s, store: \"sqlite://%s\"%s}\n", name, filepath.Join(dir, name), marks)
	}
	var ids []driver.ID
	for range 40 {
		ids = append(ids, verbs.NewID())
	}
	c := verbs.Ask(driver.Hold)
	for i, text := range []string{
		"shards:\n" + shard("a", "") + shard("b", ", cache: \"memory://\""),
		"change: prepare\nshards:\n" + shard("a", "") + shard("b", "") + shard("c", ", joins: true"),
		"change: move\nshards:\n" + shard("a", "") + shard("b", "") + shard("c", ", joins: true"),
	} {
		address := writeShards(t, text)
		if err := Check(address); err != nil {
			t.Fatal(err)
		}
		o, err := Open(t.Context(), address, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, changes := o.Store.(shardstore.Changer); !o.Lasts || !changes || o.BreakerOpen == nil || o.BreakerOpen() {
			t.Errorf("%+v", o)
		}
		for _, id := range ids {
			if i == 0 {
				verbs.Finish(t, o.Store, id, c)
			} else if rec := verbs.Load(t, o.Store, id); rec.State != driver.Done {
				t.Errorf("step %d: an operation of the first is %v", i, rec.State)
			}
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		o, err := Open(t.Context(), "sqlite://"+filepath.Join(dir, name), Options{})
		if err != nil {
			t.Fatal(err)
		}
		n, err := o.Store.(driver.Counter).Count(t.Context())
		if err != nil || n.Records < 5 || n.Records > 35 {
			t.Errorf("shard %s has %d records, error %v; want about half of 40", name, n.Records, err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A shard whose server says nothing does not hold up the start for long, nor the end.
func TestAShardThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	address := writeShards(t, fmt.Sprintf("shards:\n"+
		"  - {name: a, store: \"sqlite://%s\"}\n  - {name: b, store: \"postgres://semel@%s/x\"}\n",
		filepath.Join(t.TempDir(), "a"), silent.Addr()))
	o, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for refused, done := false, false; !refused || !done; {
		id := verbs.NewID()
		rec, _, err := o.Store.Claim(t.Context(), id, verbs.Ask(driver.Hold))
		switch {
		case err == nil:
			verbs.Settle(t, o.Store, id, rec.Owner(), verbs.Done("paid"))
			done = true
		case errors.Is(err, driver.ErrNotExecuted) && strings.Contains(err.Error(), `shard "b"`):
			refused = true
		default:
			t.Fatal(err)
		}
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

func TestAWrongFileOfShardsIsSaidToBeWrong(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                         "no shard is there",
		"shards: [{name: a}]":      `shard "a": store "": unknown kind`,
		"shards: [{nam: a}]":       "nam",
		"shards: {":                "shards.yaml",
		"change: jump\nshards: []": `change is "jump", want none, prepare or move`,
		"shards: [{name: a, store: \"memory://\"}]":                                                                                "a shard is sqlite://",
		"shards: [{name: a, store: \"shards://x\"}]":                                                                               "shards",
		"shards: [{name: a, store: \"sqlite://a\"}, {name: a, store: \"sqlite://b\"}]":                                             `two shards have the name "a"`,
		"shards: [{name: a, store: \"sqlite://a\", joins: true}]":                                                                  "no shard is there before",
		"shards: [{name: a, store: \"sqlite://a\", cache: \"redis://h\"}, {name: b, store: \"sqlite://b\", cache: \"redis://h\"}]": "the same cache",
		"shards: [{name: a, store: \"postgres://u:hunter2@db/x?notify=often\"}]":                                                   "notify",
	} {
		address := writeShards(t, text)
		err := Check(address)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error that says %q", text, err, says)
		}
	}
	if err := Check("shards://" + filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a file that is missing is right")
	}
	if err := CheckCache("memory://", writeShards(t, "shards: [{name: a, store: \"sqlite://a\"}]")); err == nil || !strings.Contains(err.Error(), "in front of each shard") {
		t.Errorf("a cache in front of all shards: %v", err)
	}
}
