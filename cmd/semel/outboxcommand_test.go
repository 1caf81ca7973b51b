package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/sqlitestore"
)

// A postbox is an outbox, on a store that the command is told of, and beside it a table of orders.
type postbox struct {
	t       *testing.T
	address string
	store   *stores.Opened
	box     outbox.Store
}

func newPostbox(t *testing.T, address string, o outbox.Options) *postbox {
	t.Helper()
	store, err := stores.Open(t.Context(), address, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	box, err := store.Outbox(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b := &postbox{t, address, store, box}
	b.exec("CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT)")
	return b
}

func onSQLite(t *testing.T, o outbox.Options) *postbox {
	t.Helper()
	return newPostbox(t, "sqlite://"+filepath.Join(t.TempDir(), "shop.db"), o)
}

// onEach runs a test on SQLite and on PostgreSQL.
func onEach(t *testing.T, o outbox.Options, test func(b *postbox)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(onSQLite(t, o))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server, err := servers.NewPostgres(servers.PostgresOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		test(newPostbox(t, server.URL()+"&schema=shop", o))
	})
}

// exec executes a statement of the application, and adds messages, in one transaction.
func (b *postbox) exec(statement string, messages ...outbox.Message) {
	b.t.Helper()
	var err error
	switch s := b.store.Store.(type) {
	case *sqlitestore.Store:
		err = s.Tx(b.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return errors.Join(err, b.box.(*sqlitestore.Outbox).Add(ctx, tx, messages...))
		})
	case *pgstore.Store:
		err = s.Tx(b.t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement)
			return errors.Join(err, b.box.(*pgstore.Outbox).Add(ctx, tx, messages...))
		})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// add adds messages without an effect.
func (b *postbox) add(messages ...outbox.Message) {
	b.t.Helper()
	b.exec("SELECT 1", messages...)
}

func (b *postbox) lease() driver.Token {
	b.t.Helper()
	q := outbox.LeaseRequest{Token: driver.NewToken(), Lease: time.Hour, Lanes: 99, Limit: 99, Max: 99, Bytes: 1 << 20}
	if _, err := b.box.Lease(b.t.Context(), q); err != nil {
		b.t.Fatal(err)
	}
	return q.Token
}

func (b *postbox) settle(token driver.Token, results ...outbox.Result) {
	b.t.Helper()
	if err := b.box.Settle(b.t.Context(), token, results); err != nil {
		b.t.Fatal(err)
	}
}

// outbox runs "semel outbox" on it.
func (b *postbox) outbox(args ...string) (status int, stdout, stderr string) {
	b.t.Helper()
	return run(b.t, append([]string{"outbox", "--store", b.address}, args...)...)
}

// must is outbox, which must succeed.
func (b *postbox) must(args ...string) string {
	b.t.Helper()
	status, stdout, stderr := b.outbox(args...)
	if status != 0 || stderr != "" {
		b.t.Fatalf("%v: exit status %d, standard error %q", args, status, stderr)
	}
	return stdout
}

// ids returns the ids that a list begins its lines with.
func ids(table string) (ids []string) {
	for line := range strings.Lines(table) {
		if id, _, _ := strings.Cut(line, " "); id != "ID" {
			ids = append(ids, id)
		}
	}
	return ids
}

func died(id string) outbox.Result {
	return outbox.Result{ID: id, Outcome: outbox.GivenUp, Error: "no such topic"}
}

func TestR83_DeadLettersAreResolvedByCommandAlone(t *testing.T) {
	t.Parallel()
	onEach(t, outbox.Options{Keep: time.Hour}, func(b *postbox) {
		t := b.t
		b.add(
			outbox.Message{ID: "m1", Topic: "orders", Key: "7", Tenant: "acme", Payload: []byte(`{"n":1}`)},
			outbox.Message{ID: "m2", Topic: "orders", Key: "8"}, outbox.Message{ID: "m3", Topic: "refunds"},
			outbox.Message{ID: "m4", Topic: "refunds"}, outbox.Message{ID: "m5", Topic: "refunds"}, outbox.Message{ID: "m6", Topic: "other"},
		)
		token := b.lease()
		b.settle(token, died("m1"), died("m2"), died("m3"), outbox.Result{ID: "m4", Outcome: outbox.Acknowledged},
			outbox.Result{ID: "m5", Outcome: outbox.Failed, Delay: time.Hour, Error: "connection\nrefused"})
		for _, c := range []struct {
			args []string
			want []string
		}{
			{[]string{"list"}, []string{"m1", "m2", "m3", "m4", "m5", "m6"}},
			{[]string{"list", "--state", "dead"}, []string{"m1", "m2", "m3"}},
			{[]string{"list", "--state", "dead", "--topic", "orders"}, []string{"m1", "m2"}},
			{[]string{"list", "--tenant", "acme"}, []string{"m1"}},
			{[]string{"list", "--key", "8"}, []string{"m2"}},
			{[]string{"list", "--state", "sent"}, []string{"m4"}},
			{[]string{"list", "--state", "pending", "--after", "m5"}, []string{"m6"}},
		} {
			if got := ids(b.must(c.args...)); !slices.Equal(got, c.want) {
				t.Errorf("%v: %q, want %q", c.args, got, c.want)
			}
		}
		contains(t, b.must("list"), `"connection\nrefused"`, "waiting", "leased", "no such topic", "acme")
		if status, stdout, stderr := b.outbox("list", "--limit", "2"); status != 0 || !slices.Equal(ids(stdout), []string{"m1", "m2"}) || !strings.Contains(stderr, "--after m2") {
			t.Errorf("a page: %d %q %q", status, stdout, stderr)
		}
		contains(t, b.must("show", "m1"), "dead: it was given up", "orders", "acme", "no such topic", "7 bytes (hidden; --body prints it)")

		contains(t, b.must("requeue", "m1", "--reason", "the topic is there", "--actor", "ana"), "m1", "dead", "pending")
		contains(t, b.must("show", "m1"), "pending: it is to be sent", "requeue message by ana: the topic is there (asked)", "requeue message by ana: the topic is there (done)")
		b.must("requeue", "m5", "--reason", "the broker is back")
		contains(t, b.must("show", "m5"), "pending: it is to be sent")
		contains(t, b.must("requeue", "--all-dead", "--topic", "refunds", "--reason", "-"), "m3")
		if got := ids(b.must("list", "--state", "dead")); !slices.Equal(got, []string{"m2"}) {
			t.Errorf("dead are %q, want m2 alone", got)
		}
		status, stdout, stderr := b.outbox("requeue", "m4", "m6", "gone", "m2", "--reason", "-")
		if status != 1 || !slices.Equal(ids(stdout), []string{"m2", "m4", "m6", "gone"}) {
			t.Errorf("exit status %d\n%s", status, stdout)
		}
		contains(t, stdout, "it was sent", "a relay is about to send it", "there is no such message")
		contains(t, stderr, "3 of 4 messages were left alone")

		b.must("drop", "m2", "m4", "--reason", "test data", "--yes")
		if got := ids(b.must("list")); !slices.Equal(got, []string{"m1", "m3", "m5", "m6"}) {
			t.Errorf("left are %q", got)
		}
		status, stdout, stderr = b.outbox("show", "m2")
		contains(t, stdout, "absent", "drop message by", "test data (done)")
		if status != 1 || !strings.Contains(stderr, "there is no such message") {
			t.Errorf("exit status %d, %q", status, stderr)
		}
		if status, _, stderr := b.outbox("drop", "m6", "--yes", "--reason", "-"); status != 1 || !strings.Contains(stderr, "about to send it") {
			t.Errorf("a leased one: exit status %d, %q", status, stderr)
		}
		if out := b.must("requeue", "--all-dead", "--reason", "-"); len(ids(out)) != 0 {
			t.Errorf("none is dead, and requeued are %q", out)
		}
	})
}

func TestR83_ADropIsAskedFirst(t *testing.T) {
	t.Parallel()
	b := onSQLite(t, outbox.Options{})
	b.add(outbox.Message{ID: "m1", Topic: "a"}, outbox.Message{ID: "m2", Topic: "a"})
	ask := func(answer func(context.Context, string) (bool, error), args ...string) (int, string) {
		var out, err output
		m := Main{Stdout: &out, Stderr: &err, Confirm: answer}
		status := m.Run(t.Context(), append([]string{"outbox", "--store", b.address, "drop", "--reason", "-"}, args...))
		return status, err.String()
	}
	answer := func(yes bool, want string) func(context.Context, string) (bool, error) {
		return func(_ context.Context, question string) (bool, error) {
			contains(t, question, want, dropMeans, "[y/N]")
			return yes, nil
		}
	}
	if status, stderr := ask(answer(false, "Message m1, which is pending,"), "m1"); status != 1 || !strings.Contains(stderr, "nothing was changed") {
		t.Errorf("no: exit status %d, %q", status, stderr)
	}
	if status, _, stderr := b.outbox("drop", "m1", "m2", "--reason", "-"); status != 2 || !strings.Contains(stderr, "--yes") {
		t.Errorf("no terminal: exit status %d, %q", status, stderr)
	}
	if got := ids(b.must("list")); len(got) != 2 {
		t.Errorf("left are %q", got)
	}
	if status, stderr := ask(answer(true, "2 messages are to be dropped"), "m1", "m2"); status != 0 {
		t.Errorf("yes: exit status %d, %q", status, stderr)
	}
	if got := ids(b.must("list")); len(got) != 0 {
		t.Errorf("left are %q", got)
	}
}

func TestR83_CommitsWithoutAMessageAreFound(t *testing.T) {
	t.Parallel()
	onEach(t, outbox.Options{Keep: time.Hour}, func(b *postbox) {
		t := b.t
		for n := range 4 {
			b.exec(fmt.Sprintf("INSERT INTO orders (number, customer) VALUES (%d, 'ann')", n),
				outbox.Message{ID: fmt.Sprintf("placed-%d", n), Topic: "orders", Key: fmt.Sprint(n), Tenant: "t"})
		}
		token := b.lease()
		b.settle(token, outbox.Result{ID: "placed-0", Outcome: outbox.Acknowledged}, died("placed-1"))
		byID := "SELECT 'placed-' || number AS id, customer FROM orders"
		byKey := "SELECT 'orders' AS topic, CAST(number AS text) AS key FROM orders"
		contains(t, b.must("check", byID+" ;\n"), "All 4 rows have a message.")
		contains(t, b.must("check", byKey), "All 4 rows have a message.")
		contains(t, b.must("check", byID+" -- a comment at the end"), "All 4 rows")
		contains(t, b.must("check", byID+" WHERE number > 99"), "All 0 rows")

		b.exec("INSERT INTO orders (number, customer) VALUES (7, 'bob'), (8, NULL)") // whose message was forgotten
		for _, query := range []string{byID, byKey + " WHERE number > 6"} {
			status, stdout, stderr := b.outbox("check", query)
			if status != 1 || strings.Count(stdout, "\n") != 3 {
				t.Errorf("%s: exit status %d\n%s", query, status, stdout)
			}
			contains(t, stdout, "7", "8")
			contains(t, stderr, "2 of ", " rows have no message")
			if strings.Contains(stderr, "no sent message") {
				t.Errorf("%s: it warns though sent messages are kept: %s", query, stderr)
			}
		}
		_, stdout, _ := b.outbox("check", byID)
		contains(t, stdout, "ID ", "CUSTOMER", "placed-7", "bob", "NULL")
		status, stdout, _ := b.outbox("check", "SELECT 'orders' AS topic, CAST(number AS text) AS key, 'other' AS tenant FROM orders", "--json", "--limit", "1")
		var v struct {
			Checked, Without int
			Missing          []map[string]*string
		}
		if err := json.Unmarshal([]byte(stdout), &v); err != nil || status != 1 || v.Checked != 6 || v.Without != 6 || len(v.Missing) != 1 || *v.Missing[0]["tenant"] != "other" {
			t.Errorf("exit status %d, %v\n%s", status, err, stdout)
		}
		b.must("drop", "--all-dead", "--reason", "-", "--yes")
		b.settle(b.lease())
		if _, err := b.box.Drop(t.Context(), "placed-0"); err != nil {
			t.Fatal(err)
		}
		if status, _, stderr := b.outbox("check", byID); status != 1 || !strings.Contains(stderr, "has no sent message") || !strings.Contains(stderr, "4 of 6") {
			t.Errorf("exit status %d, %q", status, stderr)
		}
		for query, want := range map[string]string{
			"":                                     "it is empty",
			"SELECT number FROM orders":            "its columns are number; want id, or topic and key",
			"SELECT nothing":                       "nothing",
			"DELETE FROM orders":                   "the query is of no use",
			"SELECT 'x' AS id; DELETE FROM orders": "the query is of no use",
		} {
			if status, stdout, stderr := b.outbox("check", query); status != 2 || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("%q: exit status %d, %q, %q; want 2 and %q", query, status, stdout, stderr, want)
			}
		}
		contains(t, b.must("check", "SELECT 'placed-2' AS id"), "All 1 rows")
		if address, ok := strings.CutSuffix(b.address, "&schema=shop"); ok { // another outbox, in the schema by default
			other, err := stores.Open(t.Context(), address, stores.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close() //nolint:errcheck // it has done what it was for
			if status, _, stderr := run(t, "outbox", "--store", address, "check", "SELECT 'placed-2' AS id"); status != 1 || !strings.Contains(stderr, "1 of 1 rows") {
				t.Errorf("exit status %d, %q", status, stderr)
			}
		}
	})
}

func TestR83_TheQueryOfACheckComesFromStandardInput(t *testing.T) {
	t.Parallel()
	b := onSQLite(t, outbox.Options{})
	b.add(outbox.Message{ID: "m1", Topic: "a"})
	var out, err output
	m := Main{Stdout: &out, Stderr: &err, Stdin: strings.NewReader("SELECT 'm1' AS id\n")}
	if status := m.Run(t.Context(), []string{"outbox", "check", "-", "--store", b.address}); status != 0 || !strings.Contains(out.String(), "All 1 rows") {
		t.Errorf("exit status %d, %s %s", status, out.String(), err.String())
	}
}

func TestR61_PayloadsAreHiddenUnlessAskedForAndThatIsKept(t *testing.T) {
	t.Parallel()
	const line = "k1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	ring, err := keyring.New(keyring.Key{ID: "k1", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	onEach(t, outbox.Options{Keyring: ring}, func(b *postbox) {
		t := b.t
		keys := writeIn(t, t.TempDir(), "keys", line+"\n")
		b.add(
			outbox.Message{ID: "text", Topic: "a", Payload: []byte(`{"card":"4242"}`), Headers: map[string]string{"Trace-Id": "abc123"}},
			outbox.Message{ID: "bytes", Topic: "a", Payload: []byte{0xff, 0}},
		)
		for _, args := range [][]string{{"show", "text"}, {"show", "text", "--json"}, {"list"}, {"list", "--json"}} {
			if out := b.must(append(args, "--encryption-keys-file", keys)...); strings.Contains(out, "4242") || strings.Contains(out, "abc123") {
				t.Errorf("%v shows what is hidden:\n%s", args, out)
			}
		}
		contains(t, b.must("show", "text", "--encryption-keys-file", keys), "15 bytes (hidden; --body prints it)", "Trace-Id: (hidden)")
		contains(t, b.must("show", "text", "--body", "--actor", "ana", "--encryption-keys-file", keys),
			"\n\n{\"card\":\"4242\"}\n", "Trace-Id: abc123", "show message by ana: --body (done)")
		contains(t, b.must("show", "bytes", "--body", "--json", "--encryption-keys-file", keys), `"payload_base64": "/wA="`)
		contains(t, b.must("show", "bytes", "--body", "--encryption-keys-file", keys), "not plain text; --json prints it")
		contains(t, b.must("show", "text", "--body"), "payload", "can't be read")
	})
}

// Scripts get names that stay.
func TestR83_OutboxJSONForScripts(t *testing.T) {
	t.Parallel()
	b := onSQLite(t, outbox.Options{})
	if out := b.must("list", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("an empty list is %q", out)
	}
	b.add(outbox.Message{ID: "m1", Topic: "a"})
	names := func(text string) (names []string) {
		t.Helper()
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if list, ok := v.([]any); ok {
			v = list[0]
		}
		for name := range v.(map[string]any) {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	message := []string{"attempts", "due", "ended", "error", "headers", "holds", "id", "key", "leased", "payload_size", "since", "state", "tenant", "topic"}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"list"}, message},
		{[]string{"show", "m1"}, message},
		{[]string{"check", "SELECT 'm1' AS id"}, []string{"checked", "missing", "without"}},
		{[]string{"requeue", "m1", "--reason", "-"}, []string{"id", "is", "was"}},
		{[]string{"show", "m1"}, append(slices.Clone(message[:1]), append([]string{"decisions"}, message[1:]...)...)},
		{[]string{"drop", "m1", "--reason", "-", "--yes"}, []string{"id", "is", "was"}},
	} {
		if got := names(b.must(append(c.args, "--json")...)); !slices.Equal(got, c.want) {
			t.Errorf("%v has %v, want %v", c.args, got, c.want)
		}
	}
}

func TestWrongUseOfOutbox(t *testing.T) {
	t.Parallel()
	b := onSQLite(t, outbox.Options{})
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"outbox"}, 2, "list"},
		{[]string{"outbox", "requeue", "--reason", "-"}, 2, "--all-dead"},
		{[]string{"outbox", "requeue", "m1"}, 2, "--reason"},
		{[]string{"outbox", "requeue", "m1", "--reason", " "}, 2, "--reason is empty"},
		{[]string{"outbox", "requeue", "m1", "--all-dead", "--reason", "-"}, 2, "ids say it all"},
		{[]string{"outbox", "drop", "m1", "--topic", "a", "--reason", "-"}, 2, "ids say it all"},
		{[]string{"outbox", "list", "--state", "lost"}, 2, "--state"},
		{[]string{"outbox", "list", "--limit=-1"}, 2, "negative"},
		{[]string{"outbox", "check"}, 2, "query"},
		{[]string{"outbox", "list", "--store", "sqlite://" + filepath.Join(t.TempDir(), "none.db")}, 1, "there is no file"},
		{[]string{"outbox", "list", "--store", "memory://"}, 1, "memory://"},
		{[]string{"outbox", "show", "nobody", "--store", b.address}, 1, "there is no such message"},
		{[]string{"outbox", "requeue", "nobody", "--reason", "-", "--store", b.address}, 1, "there is no such message"},
	} {
		if status, _, stderr := run(t, c.args...); status != c.status || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit status %d, %q; want %d and %q", c.args, status, stderr, c.status, c.want)
		}
	}
	for _, args := range [][]string{{"list"}, {"check", "SELECT 'x' AS id WHERE 1 = 0"}} {
		var stderr output
		m := Main{Stdout: full{}, Stderr: &stderr}
		if status := m.Run(t.Context(), append([]string{"outbox", "--store", b.address}, args...)); status != 1 || !strings.Contains(stderr.String(), "no space") {
			t.Errorf("%v: exit status %d, %q for an output that is lost", args, status, stderr.String())
		}
	}
}

func TestAStoreWithoutAnOutboxSaysSo(t *testing.T) {
	t.Parallel()
	redis, err := servers.NewRedis("--appendonly", "yes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Close() })
	if status, _, stderr := run(t, "outbox", "list", "--store", "redis://"+redis.Addr()); status != 1 || !strings.Contains(stderr, "this kind of store has no outbox") {
		t.Errorf("exit status %d, %q", status, stderr)
	}
}

func TestHelpOfOutboxIsComplete(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, says []string
	}{
		{[]string{"--help"}, []string{"outbox"}},
		{[]string{"outbox", "--help"}, []string{"Examples:", "list", "show", "requeue", "drop", "check", "pending", "dead", "sent", "exit status", "--store", "--json", "--encryption-keys-file"}},
		{[]string{"outbox", "list", "--help"}, []string{"Examples:", "--state", "--topic", "--tenant", "--key", "--after", "--limit"}},
		{[]string{"outbox", "show", "--help"}, []string{"Examples:", "--body", "--actor"}},
		{[]string{"outbox", "requeue", "--help"}, []string{"Examples:", "--all-dead", "--reason", "same id", "overtaken"}},
		{[]string{"outbox", "drop", "--help"}, []string{"Examples:", "never will", "--yes", "--reason", "(y/N)"}},
		{[]string{"outbox", "check", "--help"}, []string{"Examples:", "the message's id", "topic", "Keep", "--limit", "exit status is 1"}},
	} {
		status, stdout, stderr := run(t, c.args...)
		if status != 0 || stderr != "" {
			t.Errorf("%v: exit status %d, standard error %q", c.args, status, stderr)
		}
		contains(t, stdout, c.says...)
		for line := range strings.SplitSeq(stdout, "\n") {
			if len([]rune(line)) > 100 {
				t.Errorf("%v: a line of %d columns: %s", c.args, len([]rune(line)), line)
			}
		}
	}
}

// What can't be noted is not done.
func TestR83_NothingIsDecidedOrShownWithoutTheAuditTrail(t *testing.T) {
	t.Parallel()
	b := onSQLite(t, outbox.Options{})
	b.add(outbox.Message{ID: "m1", Topic: "a", Payload: []byte("4242")})
	b.settle(b.lease(), died("m1"))
	b.exec("CREATE TRIGGER full BEFORE INSERT ON semel_audit BEGIN SELECT RAISE(ABORT, 'no room'); END")
	before := b.must("show", "m1")
	for _, args := range [][]string{
		{"requeue", "m1", "--reason", "-"}, {"drop", "m1", "--reason", "-", "--yes"}, {"show", "m1", "--body"},
	} {
		status, stdout, stderr := b.outbox(args...)
		if status != 1 || strings.Contains(stdout, "4242") || b.must("show", "m1") != before {
			t.Errorf("%v: exit status %d\n%s", args, status, stdout)
		}
		contains(t, stderr, "nothing ", "the audit trail can't be written", "no room")
	}
}
