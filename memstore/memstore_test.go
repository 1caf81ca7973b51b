package memstore_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/storetest"
)

var (
	claim    = verbs.Claim
	settle   = verbs.Settle
	load     = verbs.Load
	newClock = verbs.NewClock
)

func open(t *testing.T, o memstore.Options) (*memstore.Store, *verbs.Clock) {
	t.Helper()
	c := newClock()
	o.Clock = c.Now
	if o.PrincipalShare == 0 {
		o.PrincipalShare = 1 // most cases have one principal
	}
	s, err := memstore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// id returns the nth of some ids, spread over the shards.
func id(n int) driver.ID {
	return semel.Identify(nil, semel.KindHTTP, "scope", strconv.Itoa(n))
}

func ask(retention time.Duration) driver.Claim {
	return driver.Claim{
		Fingerprint: driver.Fingerprint{Raw: [16]byte{1}},
		Token:       driver.NewToken(),
		Lease:       time.Hour,
		Retention:   retention,
		Operation:   "POST /payments",
	}
}

// finish claims a record and settles it as done without an answer.
func finish(t *testing.T, s *memstore.Store, id driver.ID, retention time.Duration) driver.Record {
	t.Helper()
	rec := claim(t, s, id, ask(retention))
	return settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Done})
}

// The suite proves, as far as a store can keep them, R-16, R-23, R-26, R-46, R-48, R-50, R-51, R-53, R-55 and R-62, and
// what case 1, case 2, case 3, case 7, case 11, case 12, case 19, case 21, case 24, case 37, case 41 and case 43 ask of
// a store. Its checks say which of them guards what.
func TestR88_TheStoreKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Storage {
		s, c := open(t, memstore.Options{})
		return storetest.Storage{
			Open:    func(*testing.T) driver.Store { return s },
			Advance: c.Advance,
		}
	})
}

func TestR88_TheStoreKeepsEveryPromiseInRealTime(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Storage {
		s := memstore.New()
		return storetest.Storage{Open: func(*testing.T) driver.Store { return s }}
	})
}

func TestOpenNamesTheOptionThatIsOutOfRange(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		options memstore.Options
		names   string
	}{
		{memstore.Options{MaxRecords: -1}, "MaxRecords"},
		{memstore.Options{MaxBytes: -1}, "MaxBytes"},
		{memstore.Options{PrincipalShare: -0.1}, "PrincipalShare"},
		{memstore.Options{PrincipalShare: 1.1}, "PrincipalShare"},
		{memstore.Options{PrincipalShare: math.NaN()}, "PrincipalShare"},
	} {
		if s, err := memstore.Open(row.options); err == nil || !strings.Contains(err.Error(), row.names) || s != nil {
			t.Errorf("%+v: store %v, error %v; want one about %s", row.options, s, err, row.names)
		}
	}
	if _, err := memstore.Open(memstore.Options{MaxRecords: 1, MaxBytes: 1}); err != nil {
		t.Errorf("the smallest store: %v", err)
	}
}

func TestR60_AFullStoreRefusesNewKeysAndKeepsLiveOnes(t *testing.T) {
	t.Parallel()
	const room = 40
	s, _ := open(t, memstore.Options{MaxRecords: room})
	var kept []driver.Record
	for n := range room {
		kept = append(kept, claim(t, s, id(n), ask(time.Hour)))
	}
	for n := room; n < 10*room; n++ {
		rec, owned, err := s.Claim(t.Context(), id(n), ask(time.Hour))
		if !errors.Is(err, driver.ErrFull) || owned || rec.State != driver.Absent {
			t.Fatalf("key %d: record %s, owned %t, error %v; want ErrFull", n, rec.State, owned, err)
		}
		if got := load(t, s, id(n)); got.State != driver.Absent {
			t.Fatalf("a refused key has a record: %s", got.State)
		}
	}
	for n, want := range kept {
		if got := load(t, s, id(n)); got.Owner() != want.Owner() || got.State != driver.Running {
			t.Errorf("live record %d: %s, fence %d; want running, %d", n, got.State, got.Fence, want.Fence)
		}
		settle(t, s, id(n), want.Owner(), driver.Outcome{State: driver.Free})
		c := ask(time.Hour)
		claim(t, s, id(n), c) // a known key runs again in a full store
	}
	if s.Len() != room {
		t.Errorf("%d records, want %d", s.Len(), room)
	}
}

func TestAFullStoreFindsRoomWhereRecordsExpired(t *testing.T) {
	t.Parallel()
	const room = 40
	s, c := open(t, memstore.Options{MaxRecords: room})
	live := claim(t, s, id(0), ask(time.Hour))
	for n := 1; n < room; n++ {
		finish(t, s, id(n), time.Minute)
	}
	if _, _, err := s.Claim(t.Context(), id(room), ask(time.Hour)); !errors.Is(err, driver.ErrFull) {
		t.Fatalf("nothing has expired: error %v, want ErrFull", err)
	}
	c.Advance(time.Minute)
	for n := room; n < 2*room-1; n++ {
		claim(t, s, id(n), ask(time.Hour))
	}
	if _, _, err := s.Claim(t.Context(), id(2*room), ask(time.Hour)); !errors.Is(err, driver.ErrFull) {
		t.Errorf("full of live records: error %v, want ErrFull", err)
	}
	if got := load(t, s, id(0)); got.Owner() != live.Owner() {
		t.Errorf("the live record is gone")
	}
}

func TestAProgramThatNeverSweepsDoesNotFillUp(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{MaxRecords: 400})
	most := 0
	for n := range 4000 {
		finish(t, s, id(n), time.Second)
		c.Advance(10 * time.Millisecond) // a hundred live records at any time
		most = max(most, s.Len())
	}
	if most > 300 {
		t.Errorf("%d records at once, of which a hundred were live", most)
	}
}

// oneShard returns the nth of ids that meet in one shard.
func oneShard(n int) driver.ID {
	id := id(n)
	id[24] = 7
	return id
}

func TestAClaimReclaimsABoundedNumber(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{})
	const old = 100
	for n := range old {
		finish(t, s, oneShard(n), time.Second)
	}
	c.Advance(time.Second)
	claim(t, s, oneShard(old), ask(time.Hour))
	if got := s.Len(); got < old-10 || got >= old {
		t.Errorf("%d records after the first claim, want a few of %d reclaimed", got, old)
	}
	claims := 1
	for ; s.Len() > claims && claims < old; claims++ {
		claim(t, s, oneShard(old+claims), ask(time.Hour))
	}
	if claims == old {
		t.Errorf("the backlog of %d records does not shrink: %d are left", old, s.Len()-claims)
	}
}

func TestARefusedClaimReclaimsNothing(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{})
	finish(t, s, oneShard(0), time.Second)
	claim(t, s, oneShard(1), ask(time.Hour))
	c.Advance(time.Minute)
	if _, owned, err := s.Claim(t.Context(), oneShard(1), ask(time.Hour)); owned || err != nil {
		t.Fatalf("owned is %t, error %v", owned, err)
	}
	if s.Len() != 2 {
		t.Errorf("%d records, want 2", s.Len())
	}
}

func TestAnAnswerWithoutRoomIsRefusedAndTheOutcomeFits(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{MaxBytes: 10_000})
	big := &driver.Response{Status: 200, Body: make([]byte, 6000)}
	first := claim(t, s, id(0), ask(time.Minute))
	settle(t, s, id(0), first.Owner(), driver.Outcome{State: driver.Done, Response: big})

	second := claim(t, s, id(1), ask(time.Hour))
	before := load(t, s, id(1))
	_, owned, err := s.Settle(t.Context(), id(1), second.Owner(), driver.Outcome{State: driver.Done, Response: big})
	if !errors.Is(err, driver.ErrFull) || owned {
		t.Fatalf("Settle of an answer without room: owned is %t, error %v; want ErrFull", owned, err)
	}
	if got := load(t, s, id(1)); got.State != before.State || got.Wrote != before.Wrote || got.Settled != before.Settled {
		t.Errorf("the refused settle changed the record: %+v", got)
	}
	third := claim(t, s, id(2), ask(time.Hour))
	settle(t, s, id(1), second.Owner(), driver.Outcome{State: driver.Done, Error: strings.Repeat("why ", 5000)})

	c.Advance(time.Minute) // the first answer's retention is over: there is room
	if got := settle(t, s, id(2), third.Owner(), driver.Outcome{State: driver.Free}); got.State != driver.Free {
		t.Errorf("settled as %s, want free", got.State)
	}
}

func TestAnAnswerTakesTheRoomOfWhatExpired(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{MaxBytes: 10_000})
	big := driver.Outcome{State: driver.Done, Response: &driver.Response{Body: make([]byte, 6000)}}
	rec := claim(t, s, id(0), ask(time.Minute))
	settle(t, s, id(0), rec.Owner(), big)
	rec = claim(t, s, id(1), ask(time.Hour))
	c.Advance(time.Minute)
	settle(t, s, id(1), rec.Owner(), big)
	if s.Len() != 1 {
		t.Errorf("%d records, want 1", s.Len())
	}
}

func TestASealedRequestWithoutRoomIsRefused(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{MaxBytes: 10_000})
	done := finish(t, s, id(1), time.Minute)
	sealed := ask(time.Hour)
	sealed.Sealed = make([]byte, 10_001)
	if _, owned, err := s.Claim(t.Context(), id(0), sealed); !errors.Is(err, driver.ErrFull) || owned {
		t.Errorf("a new record: owned is %t, error %v; want ErrFull", owned, err)
	}
	if s.Len() != 1 {
		t.Errorf("%d records, want 1", s.Len())
	}
	c.Advance(time.Minute)
	if _, owned, err := s.Claim(t.Context(), id(1), sealed); !errors.Is(err, driver.ErrFull) || owned {
		t.Errorf("a record past its retention: owned is %t, error %v; want ErrFull", owned, err)
	}
	if got := load(t, s, id(1)); got.State != driver.Absent && got.Owner() != done.Owner() {
		t.Errorf("the refused claim changed the record: %+v", got)
	}
}

func TestR60_AStepWithoutRoomIsRefusedAndTheOutcomeFits(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{MaxBytes: 10_000})
	save := func(n int, by driver.Owner, name string, size int, want error) {
		t.Helper()
		owned, err := s.SaveStep(t.Context(), id(n), by, name, make([]byte, size))
		if !errors.Is(err, want) || owned != (want == nil) {
			t.Fatalf("step %q of %d bytes: owned is %t, error %v; want %v", name, size, owned, err, want)
		}
	}
	saved := func(n int, want ...string) {
		t.Helper()
		got, err := s.Steps(t.Context(), id(n))
		for _, name := range want {
			if _, ok := got[name]; !ok {
				t.Errorf("step %q is missing", name)
			}
		}
		if rec := load(t, s, id(n)); err != nil || len(got) != len(want) || rec.Steps != (len(want) > 0) {
			t.Errorf("%d steps, want %d; the record says %t; error %v", len(got), len(want), rec.Steps, err)
		}
	}
	first := claim(t, s, id(0), ask(time.Minute))
	save(0, first.Owner(), "big", 10_001, driver.ErrFull)
	saved(0)
	save(0, first.Owner(), "charge", 8000, nil)
	save(0, first.Owner(), "ship", 2000, driver.ErrFull)
	save(0, first.Owner(), "charge", 8000, nil) // again: it takes no more room
	saved(0, "charge")
	second := claim(t, s, id(1), ask(time.Hour))
	settle(t, s, id(0), first.Owner(), driver.Outcome{State: driver.Done, Error: strings.Repeat("why ", 1000)})

	save(1, second.Owner(), "charge", 8000, driver.ErrFull)
	c.Advance(time.Minute) // the first one's retention is over: there is room
	save(1, second.Owner(), "charge", 8000, nil)
	saved(0)
	saved(1, "charge")

	// Each way in which they go gives their room back.
	for n := 2; n < 5; n++ {
		switch last := load(t, s, id(n-1)); n {
		case 2:
			settle(t, s, id(n-1), last.Owner(), driver.Outcome{State: driver.Free})
			if forgot, err := s.Forget(t.Context(), id(n-1), last.Owner()); !forgot || err != nil {
				t.Fatal(forgot, err)
			}
		case 3:
			settle(t, s, id(n-1), last.Owner(), driver.Outcome{State: driver.Done})
			c.Advance(2 * time.Hour)
			claim(t, s, id(n-1), ask(time.Hour))
		case 4:
			settle(t, s, id(n-1), last.Owner(), driver.Outcome{State: driver.Done})
			c.Advance(time.Hour)
			if _, err := s.Sweep(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
		asked := ask(time.Hour)
		if n == 3 {
			asked.Tombstone = time.Hour
		}
		rec := claim(t, s, id(n), asked)
		save(n, rec.Owner(), "charge", 8500, nil)
	}
	if got := load(t, s, id(3)); got.Reads(driver.Hold) != driver.ReadsExpired || got.Steps {
		t.Errorf("the tombstone reads as %s, Steps %t", got.Reads(driver.Hold), got.Steps)
	}
}

func TestASealedRequestIsTheStoresOwnCopy(t *testing.T) {
	t.Parallel()
	s, _ := open(t, memstore.Options{})
	c := ask(time.Hour)
	c.Sealed = []byte("sealed")
	rec := claim(t, s, id(0), c)
	copy(c.Sealed, "reused")
	if got := load(t, s, id(0)); string(got.Sealed) != "sealed" || string(rec.Sealed) != "sealed" {
		t.Errorf("sealed request %q, %q as claimed; want %q", got.Sealed, rec.Sealed, "sealed")
	}
}

func TestAKnownKeyIsNeverRefusedForItsBytes(t *testing.T) {
	t.Parallel()
	s, _ := open(t, memstore.Options{MaxBytes: 1000})
	c := ask(time.Hour)
	c.Correlation = strings.Repeat("x", 500)
	rec := claim(t, s, id(0), c)
	settle(t, s, id(0), rec.Owner(), driver.Outcome{State: driver.Free, Error: "connection lost"})
	c = ask(time.Hour)
	c.Correlation = strings.Repeat("x", 2000)
	claim(t, s, id(0), c)
}

func TestABoundHoldsUnderManyCallers(t *testing.T) {
	t.Parallel()
	const room, callers = 50, 200
	s, _ := open(t, memstore.Options{MaxRecords: room})
	var owners, full atomic.Int64
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			_, owned, err := s.Claim(context.Background(), id(n), ask(time.Hour))
			switch {
			case owned && err == nil:
				owners.Add(1)
			case errors.Is(err, driver.ErrFull):
				full.Add(1)
			}
		})
	}
	wg.Wait()
	if owners.Load() != room || full.Load() != callers-room || s.Len() != room {
		t.Errorf("%d owners, %d refused, %d records; want %d, %d, %d", owners.Load(), full.Load(), s.Len(), room, callers-room, room)
	}
}

func TestR46_FencesGrowWithinAMillisecond(t *testing.T) {
	t.Parallel()
	t.Run("over forget", func(t *testing.T) {
		t.Parallel()
		s, _ := open(t, memstore.Options{})
		var last uint64
		for range 5 {
			rec := finish(t, s, id(0), time.Hour)
			if rec.Fence <= last {
				t.Fatalf("fence %d follows %d", rec.Fence, last)
			}
			last = rec.Fence
			if forgot, err := s.Forget(t.Context(), id(0), rec.Owner()); !forgot || err != nil {
				t.Fatalf("Forget: %t, error %v", forgot, err)
			}
		}
	})
	t.Run("over sweep", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, memstore.Options{})
		rec := claim(t, s, id(0), ask(time.Microsecond))
		for range 50 {
			settle(t, s, id(0), rec.Owner(), driver.Outcome{State: driver.Free})
			rec = claim(t, s, id(0), ask(time.Microsecond))
		}
		settle(t, s, id(0), rec.Owner(), driver.Outcome{State: driver.Done})
		c.Advance(time.Microsecond)
		if n, err := s.Sweep(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("Sweep: %d, error %v", n, err)
		}
		if next := claim(t, s, id(0), ask(time.Hour)); next.Fence <= rec.Fence {
			t.Errorf("fence %d follows %d", next.Fence, rec.Fence)
		}
	})
}

func TestIDsThatMeetInTheIndexAreKeptApart(t *testing.T) {
	t.Parallel()
	const n = 6
	// The last bytes differ; the index does not look at them.
	ids := make([]driver.ID, n)
	for i := range ids {
		ids[i][47] = byte(i)
	}
	for first := range n {
		for second := range n {
			if first == second {
				continue
			}
			s, _ := open(t, memstore.Options{})
			recs := make([]driver.Record, n)
			for i, id := range ids {
				recs[i] = finish(t, s, id, time.Hour)
			}
			for _, i := range []int{first, second} {
				if forgot, err := s.Forget(t.Context(), ids[i], recs[i].Owner()); !forgot || err != nil {
					t.Fatalf("Forget: %t, error %v", forgot, err)
				}
			}
			for i, id := range ids {
				got := load(t, s, id)
				if gone := i == first || i == second; gone != (got.State == driver.Absent) || !gone && got.Owner() != recs[i].Owner() {
					t.Errorf("%d and %d forgotten: record %d is %s", first, second, i, got.State)
				}
			}
		}
	}
}

func TestSweepWorksInBatchesWithinAShard(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{})
	const n = 300
	for i := range n {
		finish(t, s, oneShard(i), time.Duration(1+i%7)*time.Second)
	}
	c.Advance(7 * time.Second)
	for _, row := range []struct{ limit, want int }{{-1, 0}, {0, 0}, {150, 150}, {n, n - 150}, {n, 0}} {
		if got, err := s.Sweep(t.Context(), row.limit); got != row.want || err != nil {
			t.Errorf("Sweep(%d) removed %d, error %v; want %d", row.limit, got, err, row.want)
		}
	}
	if s.Len() != 0 {
		t.Errorf("%d records are left", s.Len())
	}
}

func TestListLetsItsCallerUseTheStore(t *testing.T) {
	t.Parallel()
	s, _ := open(t, memstore.Options{})
	for n := range 20 {
		finish(t, s, oneShard(n), time.Hour)
	}
	n := 0
	err := s.List(t.Context(), driver.Query{}, func(id driver.ID, rec driver.Record) bool {
		if forgot, err := s.Forget(t.Context(), id, rec.Owner()); !forgot || err != nil {
			t.Errorf("Forget: %t, error %v", forgot, err)
		}
		n++
		return true
	})
	if err != nil || n != 20 || s.Len() != 0 {
		t.Errorf("%d listed, %d left, error %v", n, s.Len(), err)
	}
}

func TestTheDefaultClockRunsWithTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := ask(time.Hour)
		c.Lease, c.OnLost = 30*time.Second, driver.Rerun
		start := time.Now()
		rec := claim(t, s, id(0), c)
		if rec.Started != driver.TimeOf(start) {
			t.Errorf("started at %s, want %s", rec.Started.Time(), start)
		}
		other := c
		other.Token = driver.NewToken()
		<-time.After(30*time.Second - time.Microsecond)
		if _, owned, err := s.Claim(t.Context(), id(0), other); owned || err != nil {
			t.Errorf("a microsecond before the lease ends: owned is %t, error %v", owned, err)
		}
		<-time.After(time.Microsecond)
		if next := claim(t, s, id(0), other); next.Fence != rec.Fence+1 {
			t.Errorf("fence %d follows %d", next.Fence, rec.Fence)
		}
	})
}

func TestErrorsSayWhichVerbFailed(t *testing.T) {
	t.Parallel()
	s, _ := open(t, memstore.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, claimErr := s.Claim(ctx, id(0), ask(time.Hour))
	_, saveErr := s.SaveStep(ctx, id(0), driver.Owner{}, "charge", nil)
	_, stepsErr := s.Steps(ctx, id(0))
	_, extendErr := s.Extend(ctx, id(0), driver.Owner{}, driver.Extension{})
	_, _, settleErr := s.Settle(ctx, id(0), driver.Owner{}, driver.Outcome{State: driver.Free})
	_, loadErr := s.Load(ctx, id(0))
	_, sweepErr := s.Sweep(ctx, 1)
	_, seizeErr := s.Seize(ctx, id(0), driver.NewToken())
	_, forgetErr := s.Forget(ctx, id(0), driver.Owner{})
	listErr := s.List(ctx, driver.Query{}, nil)
	for verb, err := range map[string]error{
		"claim": claimErr, "extend": extendErr, "settle": settleErr, "load": loadErr,
		"sweep": sweepErr, "seize": seizeErr, "forget": forgetErr, "list": listErr,
		"save step": saveErr, "steps": stepsErr,
	} {
		if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "memstore: "+verb+": ") {
			t.Errorf("%s: error %v", verb, err)
		}
	}
}
