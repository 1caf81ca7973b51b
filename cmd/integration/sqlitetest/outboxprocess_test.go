package sqlitetest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/child"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/sqlitestore"
)

// With this variable set to a database's path the test binary serves as a relay in another process.
const relayVariable = "SEMEL_SQLITETEST_RELAY"

// relayUntilKilled relays to a file beside the database, and prints each id once it stands there.
func relayUntilKilled(path string) error {
	db, err := openFile(path, "")
	if err != nil {
		return err
	}
	s, err := sqlitestore.Open(context.Background(), db, sqlitestore.Options{})
	if err != nil {
		return err
	}
	b, err := sqlitestore.OpenOutbox(s, outbox.Options{})
	if err != nil {
		return err
	}
	broker, err := os.OpenFile(path+".broker", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	publisher := outbox.Func(4, func(_ context.Context, m *outbox.Message) error {
		if _, err := fmt.Fprintln(broker, m.ID); err != nil {
			return err
		}
		_, err := fmt.Println(m.ID)
		return err
	})
	r, err := outbox.NewRelay(b, publisher, outbox.RelayOptions{Batch: 8, PublishTimeout: 100 * time.Millisecond, Lease: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	return errors.Join(errors.New("the relay has ended"), r.Run(context.Background()))
}

// startRelay starts a relay in another process, which is killed when it has sent so many messages, or with the test.
func startRelay(t *testing.T, path string, messages int, over chan<- struct{}) {
	t.Helper()
	exe, err := child.Program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), relayVariable+"="+path)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(stdout)
		for n := 0; n < messages && lines.Scan(); n++ {
		}
		cmd.Process.Kill() //nolint:errcheck // it may have ended with the test
		cmd.Wait()         //nolint:errcheck // it was killed
		over <- struct{}{}
	}()
}

// Each relay is killed where it happens to be, between a publish and its mark for example, and another one goes on.
func TestR83_RelaysInProcessesThatAreKilledLoseNothing(t *testing.T) {
	t.Parallel()
	const orders, keys, relays, each = 120, 7, 2, 25
	path := newFile(t)
	s, db := openStore(t, path, sqlitestore.Options{})
	b, err := sqlitestore.OpenOutbox(s, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	execSQL(t, db, "CREATE TABLE orders (id TEXT PRIMARY KEY)")
	over := make(chan struct{}, relays)
	for range relays {
		startRelay(t, path, each, over)
	}
	refused := errors.New("out of stock")
	for i := range orders {
		id := fmt.Sprintf("%03d", i)
		err := s.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", id); err != nil {
				return err
			}
			if err := b.Add(ctx, tx, outbox.Message{ID: id, Topic: "orders", Key: fmt.Sprint(i % keys)}); err != nil {
				return err
			}
			if i%10 == 9 {
				return refused
			}
			return nil
		})
		if err != nil && !errors.Is(err, refused) {
			t.Fatal(err)
		}
	}
	for killed := 0; ; {
		stats, err := b.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if stats.Pending == 0 {
			if killed == 0 {
				t.Error("no relay was killed")
			}
			break
		}
		select {
		case <-over:
			killed++
			startRelay(t, path, each, over)
		case <-time.After(10 * time.Millisecond):
		}
	}
	sent, err := os.ReadFile(path + ".broker")
	if err != nil {
		t.Fatal(err)
	}
	var first []string
	for _, id := range strings.Fields(string(sent)) {
		if !slices.Contains(first, id) {
			first = append(first, id)
		}
	}
	for k := range keys {
		var of []string
		for _, id := range first {
			if n, err := strconv.Atoi(id); err == nil && n%keys == k {
				of = append(of, id)
			}
		}
		if !slices.IsSorted(of) {
			t.Errorf("the messages of key %d came first in the order %q", k, of)
		}
	}
	slices.Sort(first)
	var committed []string
	rows, err := db.Query("SELECT id FROM orders ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		committed = append(committed, id)
	}
	if rows.Err() != nil || len(committed) != orders*9/10 || !slices.Equal(first, committed) {
		t.Errorf("%d orders are committed, and %d messages have come: %q (%v)", len(committed), len(first), first, rows.Err())
	}
}
