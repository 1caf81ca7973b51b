package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

// newIDs returns ids in their order.
func newIDs(n int) []driver.ID {
	ids := make([]driver.ID, n)
	for i := range ids {
		ids[i] = newID()
	}
	slices.SortFunc(ids, func(a, b driver.ID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// batchOf makes claims of their own for the ids.
func batchOf(ids []driver.ID, c driver.Claim) []driver.ClaimOf {
	claims := make([]driver.ClaimOf, len(ids))
	for i, id := range ids {
		c.Token = driver.NewToken()
		claims[i] = driver.ClaimOf{ID: id, Claim: c}
	}
	return claims
}

// A thousand claims are one round trip and one transaction, and come back in their order.
func TestABatchOfClaimsIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	proxy, url := newCutter(t, server.URL())
	s := openOn(t, newPool(t, url), Options{MaxConns: 1})
	for _, row := range []struct{ claims, trips int }{{0, 0}, {1, 1}, {tripClaims, 1}, {2*tripClaims + 1, 3}} {
		ids := newIDs(row.claims)
		slices.Reverse(ids)
		claims := batchOf(ids, ask(driver.Hold))
		for i := range claims {
			claims[i].Correlation = fmt.Sprint(i)
		}
		load(t, s, newID())
		before := proxy.trips.Load()
		all := s.ClaimAll(context.Background(), claims)
		if got := proxy.trips.Load() - before; got != int64(row.trips) || len(all) != row.claims {
			t.Errorf("%d claims were %d round trips with %d results, want %d", row.claims, got, len(all), row.trips)
		}
		for i, c := range all {
			if c.Err != nil || !c.Owned || c.Record.Token != claims[i].Token || c.Record.Correlation != fmt.Sprint(i) {
				t.Fatalf("claim %d of %d: %t, %v, correlation %q", i, row.claims, c.Owned, c.Err, c.Record.Correlation)
			}
		}
		if n := value[int](t, s, "SELECT count(DISTINCT xmin::text) FROM {schema}.records"); n != row.trips {
			t.Errorf("%d claims were %d transactions, want %d", row.claims, n, row.trips)
		}
		exec(t, s, "DELETE FROM {schema}.records")
	}
}

// Large requests are sent in several trips.
func TestABatchOfLargeRequestsIsDivided(t *testing.T) {
	t.Parallel()
	proxy, url := newCutter(t, server.URL())
	s := openOn(t, newPool(t, url), Options{MaxConns: 1})
	c := ask(driver.Hold)
	c.Sealed = make([]byte, tripBytes/2)
	claims := batchOf(newIDs(5), c)
	claims[4].Sealed = make([]byte, tripBytes+1)
	load(t, s, newID())
	before := proxy.trips.Load()
	for i, got := range s.ClaimAll(context.Background(), claims) {
		if !got.Owned || got.Err != nil || len(got.Record.Sealed) != len(claims[i].Sealed) {
			t.Errorf("claim %d: %t, %v, %d bytes are sealed", i, got.Owned, got.Err, len(got.Record.Sealed))
		}
	}
	if got := proxy.trips.Load() - before; got != 3 {
		t.Errorf("%d round trips, want 3", got)
	}
}

func TestABatchMayRepeatAnOperation(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ids := newIDs(2)
	c := ask(driver.Hold)
	claims := batchOf([]driver.ID{ids[1], ids[0], ids[1], ids[0], ids[1]}, c)
	claims[4].Claim = claims[0].Claim // sent twice
	for i, got := range s.ClaimAll(context.Background(), claims) {
		want := []bool{true, true, false, false, true}[i]
		first := claims[i%2].Token
		if got.Err != nil || got.Owned != want || got.Record.Token != first || got.Record.State != driver.Running || got.Record.Attempt != 1 {
			t.Errorf("claim %d: owned is %t, want %t; error %v, attempt %d", i, got.Owned, want, got.Err, got.Record.Attempt)
		}
	}
}

// A batch locks the records that it changes in the order of their ids, whatever its own: two that meet wait for each
// other, but not in a circle.
func TestABatchClaimsInTheOrderOfIDs(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ids := newIDs(3)
	c := ask(driver.Rerun)
	c.Lease = time.Nanosecond // over at once: each claim is a takeover
	s.ClaimAll(context.Background(), batchOf(ids, c))
	tx := begin(t, s, pgx.TxOptions{})
	txValue[int](t, s, tx, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE", ids[1][:])
	results := make(chan []driver.Claimed)
	go func() {
		results <- s.ClaimAll(context.Background(), batchOf([]driver.ID{ids[2], ids[1], ids[0]}, c))
	}()
	waitsForLock(t, s, tx)
	for i, want := range []int{0, 0, 1} {
		const lockable = "SELECT count(*) FROM (SELECT FROM {schema}.records WHERE id = $1 FOR UPDATE SKIP LOCKED) r"
		if n := value[int](t, s, lockable, ids[i][:]); n != want {
			t.Errorf("of record %d, %d can be locked while the batch waits for record 1, want %d", i, n, want)
		}
	}
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i, got := range <-results {
		if !got.Owned || got.Err != nil || got.Record.Fence == 0 || got.Record.Attempt != 2 {
			t.Errorf("claim %d: %t, %v, attempt %d", i, got.Owned, got.Err, got.Record.Attempt)
		}
	}
}

// Batches of the same operations in opposite orders, and single claims among them: each operation is owned once, and
// nobody is told of a deadlock.
func TestConcurrentBatchesOwnEachOperationOnce(t *testing.T) {
	t.Parallel()
	a := openStore(t, Options{})
	b := openOn(t, newPool(t, bouncer.URL()), Options{Schema: a.schema})
	for round := range 6 {
		ids := newIDs(150)
		c := ask(driver.Rerun)
		if round%2 == 1 { // takeovers, not inserts
			c.Lease = time.Nanosecond
			a.ClaimAll(context.Background(), batchOf(ids, c))
			c.Lease = time.Hour
		}
		var mu sync.Mutex
		owners := map[driver.ID]driver.Token{}
		note := func(id driver.ID, got driver.Claimed) {
			mu.Lock()
			defer mu.Unlock()
			if got.Err != nil {
				t.Errorf("claim: %v", got.Err)
			}
			if got.Owned {
				if _, twice := owners[id]; twice {
					t.Errorf("%s is owned twice", id)
				}
				owners[id] = got.Record.Token
			}
		}
		var all sync.WaitGroup
		for i := range 6 {
			mine := slices.Clone(ids)
			if i%2 == 1 {
				slices.Reverse(mine)
			}
			s := []*Store{a, b}[i/2%2]
			claims := batchOf(mine, c)
			all.Go(func() {
				for i, got := range s.ClaimAll(context.Background(), claims) {
					note(claims[i].ID, got)
				}
			})
		}
		for _, claim := range batchOf(ids[:50], c) {
			all.Go(func() {
				rec, owned, err := a.Claim(context.Background(), claim.ID, claim.Claim)
				note(claim.ID, driver.Claimed{Record: rec, Owned: owned, Err: err})
			})
		}
		all.Wait()
		if len(owners) != len(ids) {
			t.Fatalf("%d of %d operations are owned", len(owners), len(ids))
		}
		for id, token := range owners {
			if rec := load(t, a, id); rec.Token != token {
				t.Errorf("%s is not its owner's", id)
			}
		}
	}
}

// A record that can't be read fails its own claim only (R-41a).
func TestR41a_OneUnreadableRecordOfABatch(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ids := newIDs(4)
	for _, id := range ids[1:3] {
		finished(t, s, id)
	}
	exec(t, s, "UPDATE {schema}.records SET layout = 2 WHERE id = $1", ids[1][:])
	exec(t, s, "UPDATE {schema}.records SET answer = substr(answer, 1, 5) WHERE id = $1", ids[2][:])
	for i, got := range s.ClaimAll(context.Background(), batchOf(ids, ask(driver.Hold))) {
		bad := i == 1 || i == 2
		if errors.Is(got.Err, driver.ErrUnreadable) != bad || got.Owned == bad || !bad && got.Err != nil {
			t.Errorf("claim %d: owned is %t, error %v", i, got.Owned, got.Err)
		}
	}
}

// Where nothing was acknowledged, each result says so; sent again with the same tokens, each claim is its own.
func TestABatchWhoseReplyWasLostIsRepeated(t *testing.T) {
	t.Parallel()
	proxy, url := newCutter(t, server.URL())
	s := openOn(t, newPool(t, url), Options{})
	claims := batchOf(newIDs(20), ask(driver.Hold))
	lost := &cut{statement: s.sql.claimAll, gone: make(chan string)}
	proxy.armed.Store(lost)
	for i, got := range s.ClaimAll(context.Background(), claims) {
		if got.Owned || got.Record.State != driver.Absent || !errors.Is(got.Err, ErrUnreachable) {
			t.Fatalf("claim %d without a reply: %t, %v", i, got.Owned, got.Err)
		}
	}
	<-lost.gone
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i, got := range s.ClaimAll(ctx, claims) {
		if !errors.Is(got.Err, context.Canceled) {
			t.Errorf("claim %d with a context that has ended: %v", i, got.Err)
		}
	}
	for i, got := range s.ClaimAll(context.Background(), claims) {
		if !got.Owned || got.Err != nil || got.Record.Attempt != 1 {
			t.Errorf("claim %d, repeated: %t, %v, attempt %d", i, got.Owned, got.Err, got.Record.Attempt)
		}
	}
}

// What a batch acknowledges is durable, whatever the role's settings say.
func TestABatchCommitsSynchronously(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	claims := batchOf(newIDs(3), ask(driver.Hold))
	for _, want := range []string{"on", "off"} { // the second time all are refused
		tx := begin(t, s, pgx.TxOptions{})
		if _, err := tx.Exec(context.Background(), "SET LOCAL synchronous_commit = off"); err != nil {
			t.Fatal(err)
		}
		rows := 0
		count := func([][]byte) error { rows++; return nil }
		if err := s.claimAllCall(claims, []int{0, 1, 2}).run(context.Background(), tx.Conn().PgConn(), count); err != nil || rows != 3 {
			t.Fatalf("%d rows, error %v", rows, err)
		}
		if got := txValue[string](t, s, tx, "SHOW synchronous_commit"); got != want {
			t.Errorf("synchronous_commit is %s, want %s", got, want)
		}
		if err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i := range claims {
			claims[i].Token = driver.NewToken()
		}
	}
}
