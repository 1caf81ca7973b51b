package shardtest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/internal/verbs"
)

type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// shardFile writes a file of shards: their names, and addresses.
func shardFile(t *testing.T, shards ...string) (address string) {
	t.Helper()
	text := "shards:\n"
	for i := 0; i < len(shards); i += 2 {
		text += fmt.Sprintf("  - {name: %s, store: %q}\n", shards[i], shards[i+1])
	}
	name := filepath.Join(t.TempDir(), "shards.yaml")
	must(t, os.WriteFile(name, []byte(text), 0o600))
	return "shards://" + name
}

// A gateway that is restarted while the servers of some shards are down serves the other shards, and those once they are
// back, without another restart.
func TestAProcessStartsWhileShardsAreDown(t *testing.T) {
	t.Parallel()
	p, err := servers.NewPostgres(servers.PostgresOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	r, err := servers.NewRedis()
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	file := "sqlite://" + filepath.Join(t.TempDir(), "semel.db")
	address := shardFile(t, "file", file, "pg", p.URL(), "redis", "redis://"+r.Addr())

	// What is wrong, and not down, is said at the start.
	other := strings.Replace(p.URL(), "?", "-other?", 1)
	if other == p.URL() {
		other += "-other"
	}
	if o, err := stores.Open(t.Context(), shardFile(t, "file", file, "pg", other), stores.Options{}); err == nil || !strings.Contains(err.Error(), `shard "pg"`) {
		t.Errorf("a database that does not exist: %v", err)
		if err == nil {
			must(t, o.Close())
		}
	}
	must(t, p.Stop())
	must(t, r.Stop())
	if _, err := stores.Open(t.Context(), shardFile(t, "pg", p.URL(), "redis", "redis://"+r.Addr()), stores.Options{}); err == nil ||
		!strings.Contains(err.Error(), `shard "pg"`) || !strings.Contains(err.Error(), `shard "redis"`) {
		t.Errorf("without any shard: %v", err)
	}

	log := &output{}
	o, err := stores.Open(t.Context(), address, stores.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	must(t, err)
	defer func() { must(t, o.Close()) }()
	open, refused := 0, map[string]driver.ID{}
	for open == 0 || len(refused) < 2 {
		id := verbs.NewID()
		rec, owned, err := o.Store.Claim(t.Context(), id, verbs.Ask(driver.Hold))
		switch {
		case err == nil && owned:
			verbs.Settle(t, o.Store, id, rec.Owner(), verbs.Done("paid"))
			open++
		case !errors.Is(err, driver.ErrNotExecuted):
			t.Fatalf("a claim: %t, %v", owned, err)
		case strings.Contains(err.Error(), `shard "pg"`):
			refused["pg"] = id
		case strings.Contains(err.Error(), `shard "redis"`):
			refused["redis"] = id
		}
	}
	for name := range refused {
		if !strings.Contains(log.String(), `msg="a shard is not there: its operations are refused until it is" shard=`+name) {
			t.Errorf("the log does not say that %s is down: %s", name, log)
		}
	}

	must(t, p.Start())
	must(t, r.Start())
	for name, id := range refused {
		until := time.Now().Add(2 * time.Minute)
		for {
			rec, owned, err := o.Store.Claim(t.Context(), id, verbs.Ask(driver.Hold))
			if err == nil && owned {
				verbs.Settle(t, o.Store, id, rec.Owner(), verbs.Done("paid"))
				break
			}
			if time.Now().After(until) {
				t.Fatalf("%s does not come back: %t, %v", name, owned, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if !strings.Contains(log.String(), `msg="the shard is there" shard=`+name) {
			t.Errorf("the log does not say that %s is back: %s", name, log)
		}
	}
	// All of it works: what asks every shard too.
	n, err := o.Store.(driver.Counter).Count(t.Context())
	if must(t, err); n.Records < int64(open)+2 {
		t.Errorf("%d records, want %d", n.Records, open+2)
	}
}
