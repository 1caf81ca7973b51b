package linear

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// at is a time on the store's clock, in milliseconds.
func at(ms int) driver.Time { return driver.Time(1_900_000_000_000_000 + ms*1000) }

var (
	tokenA, tokenB = driver.Token{0xa}, driver.Token{0xb}
	claimA         = driver.Claim{Token: tokenA, Lease: time.Hour, Retention: time.Hour, OnLost: semel.Rerun}
	claimB         = driver.Claim{Token: tokenB, Lease: time.Hour, Retention: time.Hour, OnLost: semel.Rerun}
	answered       = driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 201, Body: []byte("paid")}}

	absent   = driver.Record{Now: at(0)}
	runningA = first(absent.Claim(at(0), claimA)) // what A's claim makes of it
	runningB = first(absent.Claim(at(0), claimB))
	doneA    = first(runningA.Settle(at(1), runningA.Owner(), answered))
	freeA    = first(runningA.Settle(at(1), runningA.Owner(), driver.Outcome{State: driver.Free}))
	unknownA = first(runningA.Settle(at(1), runningA.Owner(), driver.Outcome{State: driver.Unknown}))
	seizedB  = first(runningA.Seize(at(1), tokenB))
)

func first(r driver.Record, _ bool) driver.Record { return r }

// heard is a verb from one moment to another.
type heard struct {
	from, to int64 // never: its reply was lost
	call
	reply
}

func claims(c driver.Claim) call                     { return call{verb: claim, claim: c} }
func settles(by driver.Owner, o driver.Outcome) call { return call{verb: settle, by: by, outcome: o} }

func extends(by driver.Owner, d time.Duration) call {
	return call{verb: extend, by: by, extend: driver.Extension{Lease: d}}
}

func begins(by driver.Owner, d time.Duration) call {
	return call{verb: extend, by: by, extend: driver.Extension{Lease: d, Begun: true}}
}
func forgets(by driver.Owner) call  { return call{verb: forget, by: by} }
func seizes(t driver.Token) call    { return call{verb: seize, token: t} }
func owned(rec driver.Record) reply { return reply{rec: rec, owned: true} }
func told(rec driver.Record) reply  { return reply{rec: rec} }
func layered(c call, n int) call    { c.layers, c.n = true, n; return c }

var (
	loads = call{verb: load}
	lost  = reply{lost: true}
	yes   = reply{owned: true}
	no    = reply{}
)

func TestTheModelTellsWhatCanBeFromWhatCannot(t *testing.T) {
	t.Parallel()
	later := func(r driver.Record, lease time.Duration) driver.Record { // renewed in the second millisecond
		return first(r.Extend(at(2), r.Owner(), driver.Extension{Lease: lease}))
	}
	highFence := runningB
	highFence.Fence += 5
	short := claimA
	short.Lease = time.Millisecond
	shortA := first(absent.Claim(at(0), short))
	takenB := first(shortA.Claim(at(5), claimB))
	held, other := claimA, claimB
	held.OnLost, other.Fingerprint = semel.Hold, driver.Fingerprint{Raw: [16]byte{2}, Canonical: [16]byte{2}}
	heldA := first(absent.Claim(at(0), held))
	releasedA := first(heldA.Settle(at(1), heldA.Owner(), driver.Outcome{State: driver.Free}))
	otherB := first(releasedA.Claim(at(5), other))
	release := settles(heldA.Owner(), driver.Outcome{State: driver.Free})
	forgotten := freeA
	forgotten.Maybe = false

	for _, row := range []struct {
		name string
		ok   bool
		said []heard
	}{
		{"a claim, a settle, a replay", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 6, claims(claimB), told(doneA)},
			{7, 8, loads, told(doneA)},
		}},
		{"two claims own one record", false, []heard{
			{1, 3, claims(claimA), owned(runningA)}, {2, 4, claims(claimB), owned(runningB)},
		}},
		{"one of two claims owns", true, []heard{
			{1, 3, claims(claimA), owned(runningA)}, {2, 4, claims(claimB), told(runningA)},
		}},
		{"a claim is refused by what comes after it", false, []heard{
			{1, 2, claims(claimB), told(runningA)}, {3, 4, claims(claimA), owned(runningA)},
		}},
		{"a reader sees what was before", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 6, loads, told(runningA)},
		}},
		{"a reader at the same time sees what was before", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 6, settles(runningA.Owner(), answered), owned(doneA)},
			{4, 5, loads, told(runningA)},
		}},
		{"two readers at the same time see it the wrong way round", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 8, settles(runningA.Owner(), answered), owned(doneA)},
			{4, 5, loads, told(doneA)},
			{6, 7, loads, told(runningA)},
		}},

		{"a lost claim was executed", true, []heard{
			{1, never, claims(claimA), lost}, {2, 3, loads, told(runningA)},
		}},
		{"a lost claim is executed late", true, []heard{
			{1, never, claims(claimA), lost}, {2, 3, loads, told(absent)}, {4, 5, loads, told(runningA)},
		}},
		{"a lost claim was never executed", true, []heard{
			{1, never, claims(claimA), lost}, {2, 3, claims(claimB), owned(runningB)}, {4, 5, loads, told(runningB)},
		}},
		{"a lost claim is executed, and then not", false, []heard{
			{1, never, claims(claimA), lost}, {2, 3, loads, told(runningA)}, {4, 5, loads, told(absent)},
		}},
		{"a lost claim owns with another lease", false, []heard{
			{1, never, claims(claimA), lost}, {2, 3, loads, told(shortA)},
		}},
		{"a lost claim, of which somebody guesses the fence", true, []heard{
			{1, never, claims(claimA), lost},
			{2, 3, extends(driver.Owner{Fence: runningA.Fence + 1, Token: tokenA}, time.Hour), no},
			{4, 5, extends(driver.Owner{Fence: runningA.Fence - 1, Token: tokenA}, time.Hour), no},
			{6, 7, extends(runningA.Owner(), 2*time.Hour), yes},
			{8, 9, loads, told(later(runningA, 2*time.Hour))},
		}},
		{"a lost claim with two fences", false, []heard{
			{1, never, claims(claimA), lost},
			{2, 3, extends(driver.Owner{Fence: runningA.Fence - 1, Token: tokenA}, time.Hour), yes},
			{4, 5, loads, told(later(runningA, time.Hour))},
		}},
		{"a lost claim whose fence is not the least", true, []heard{
			{1, never, claims(claimA), lost},
			{2, 3, claims(claimB), told(runningA)},
			{4, 5, extends(driver.Owner{Fence: 1, Token: tokenA}, time.Hour), no},
		}},
		{"another request has a released key", true, []heard{
			{1, 2, claims(held), owned(heldA)},
			{3, 4, release, owned(releasedA)},
			{5, 6, claims(other), owned(otherB)},
			{7, 8, claims(held), told(otherB)},
		}},
		{"another request is refused a released key", false, []heard{
			{1, 2, claims(held), owned(heldA)}, {3, 4, release, owned(releasedA)}, {5, 6, claims(other), told(releasedA)},
		}},
		{"another request has a key that may have been used", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), driver.Outcome{State: driver.Free}), owned(freeA)},
			{5, 6, claims(other), owned(first(forgotten.Claim(at(5), other)))},
		}},
		{"a lost claim of another request has a released key", true, []heard{
			{1, 2, claims(held), owned(heldA)},
			{3, 4, release, owned(releasedA)},
			{5, never, claims(other), lost},
			{6, 7, claims(held), told(otherB)},
			{8, 9, loads, told(otherB)},
		}},
		{"a lost takeover", true, []heard{
			{1, 2, claims(short), owned(shortA)},
			{3, never, claims(claimB), lost},
			{4, 5, loads, told(takenB)},
		}},
		{"a lost claim takes over what does not lapse", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, never, claims(claimB), lost},
			{4, 5, loads, told(first(func() (driver.Record, bool) {
				r := runningA
				r.LeaseEnd = at(1)
				return r.Claim(at(5), claimB)
			}()))},
		}},

		{"a takeover", true, []heard{
			{1, 2, claims(short), owned(shortA)},
			{3, 4, claims(claimB), owned(takenB)},
			{5, 6, settles(shortA.Owner(), answered), told(takenB)}, // the late owner
		}},
		{"a late owner settles", false, []heard{
			{1, 2, claims(short), owned(shortA)},
			{3, 4, claims(claimB), owned(takenB)},
			{5, 6, settles(shortA.Owner(), answered), owned(doneA)},
		}},
		{"a settle, twice", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 6, settles(runningA.Owner(), answered), owned(doneA)},
		}},
		{"the second settle is refused", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 6, settles(runningA.Owner(), answered), told(doneA)},
		}},
		{"a lost settle", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, never, settles(runningA.Owner(), answered), lost},
			{4, 5, claims(claimB), told(doneA)},
		}},
		{"a lost settle has another answer", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, never, settles(runningA.Owner(), driver.Outcome{State: driver.Done}), lost},
			{4, 5, claims(claimB), told(doneA)},
		}},
		{"a lost release, and a repeated one", true, []heard{
			{1, never, claims(claimA), lost},
			{2, never, settles(driver.Owner{Token: tokenA, Above: true}, driver.Outcome{State: driver.Free}), lost},
			{4, 5, settles(driver.Owner{Token: tokenA, Above: true}, driver.Outcome{State: driver.Free}), owned(first(
				runningA.Settle(at(1), driver.Owner{Token: tokenA, Above: true}, driver.Outcome{State: driver.Free})))},
		}},

		{"a renewal", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, extends(runningA.Owner(), 2*time.Hour), yes},
			{5, 6, loads, told(later(runningA, 2*time.Hour))},
		}},
		{"a renewal moves nothing", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, extends(runningA.Owner(), 2*time.Hour), yes},
			{5, 6, loads, told(runningA)},
		}},
		{"a renewal for long, and a takeover", false, []heard{
			{1, 2, claims(short), owned(shortA)},
			{3, 4, extends(shortA.Owner(), time.Hour), yes},
			{5, 6, claims(claimB), owned(takenB)},
		}},
		{"a renewal for a moment, and a takeover", true, []heard{
			{1, 2, claims(short), owned(shortA)},
			{3, 4, extends(shortA.Owner(), time.Millisecond), yes},
			{5, 6, claims(claimB), owned(takenB)},
		}},
		{"a renewal of what is done", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 6, extends(runningA.Owner(), time.Hour), yes},
		}},
		{"a renewal is refused to the owner", false, []heard{
			{1, 2, claims(claimA), owned(runningA)}, {3, 4, extends(runningA.Owner(), time.Hour), no},
		}},
		{"a renewal that was lost, and a claim again", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, never, extends(runningA.Owner(), 2*time.Hour), lost},
			{4, 5, claims(claimA), owned(first(runningA.Claim(at(3), claimA)))},
		}},

		{"a seizure and its decision", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, seizes(tokenB), told(seizedB)},
			{5, 6, settles(runningA.Owner(), answered), told(seizedB)},
			{7, 8, settles(seizedB.Owner(), answered), owned(first(seizedB.Settle(at(2), seizedB.Owner(), answered)))},
		}},
		{"a lost seizure", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, never, seizes(tokenB), lost},
			{5, 6, settles(runningA.Owner(), answered), told(seizedB)},
		}},
		{"unknown, and the owner settles again", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), driver.Outcome{State: driver.Unknown}), owned(unknownA)},
			{5, 6, settles(runningA.Owner(), answered), owned(doneA)},
		}},

		{"forgotten, and new", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), driver.Outcome{State: driver.Free}), owned(freeA)},
			{5, 6, forgets(freeA.Owner()), yes},
			{7, 8, claims(claimB), owned(highFence)},
		}},
		{"forgotten, and the fence does not grow", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), driver.Outcome{State: driver.Free}), owned(freeA)},
			{5, 6, forgets(freeA.Owner()), yes},
			{7, 8, claims(claimB), owned(runningB)},
		}},
		{"forgotten, and the fence of a lost claim does not grow", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), driver.Outcome{State: driver.Free}), owned(freeA)},
			{5, 6, forgets(freeA.Owner()), yes},
			{7, never, claims(claimB), lost},
			{8, 9, loads, told(runningB)},
		}},
		{"what runs is forgotten", false, []heard{
			{1, 2, claims(claimA), owned(runningA)}, {3, 4, forgets(runningA.Owner()), yes},
		}},
		{"what has begun is forgotten", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, begins(runningA.Owner(), time.Hour), yes},
			{5, 6, forgets(runningA.Owner()), yes},
		}},
		{"what has begun, and lapsed, is forgotten", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, begins(runningA.Owner(), time.Millisecond), yes},
			{5, 6, forgets(runningA.Owner()), yes},
			{7, 8, loads, told(absent)},
		}},

		{"a copy outlives its record", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 10, forgets(doneA.Owner()), yes},
			{6, 7, extends(doneA.Owner(), time.Hour), no},
			{6, 7, loads, told(absent)},
			{8, 9, loads, told(doneA)},
		}},
		{"a copy outlives its record until its Forget has ended", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 10, layered(forgets(doneA.Owner()), 0), yes},
			{5, 10, call{verb: drop}, no},
			{6, 7, loads, told(absent)},
			{8, 9, claims(claimB), told(doneA)},
		}},
		{"a copy outlives its Forget", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 10, layered(forgets(doneA.Owner()), 0), yes},
			{5, 10, call{verb: drop}, no},
			{11, 12, loads, told(doneA)},
		}},
		{"a copy of what a Forget deleted that was lost", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, never, layered(forgets(doneA.Owner()), 0), lost},
			{6, 7, settles(doneA.Owner(), answered), told(absent)},
			{8, 9, loads, told(doneA)},
		}},
		{"a copy of what was there before the last one", true, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 20, layered(forgets(doneA.Owner()), 0), yes},
			{5, 20, call{verb: drop}, no},
			{6, 7, claims(claimB), owned(highFence)},
			{8, 9, settles(highFence.Owner(), answered), owned(first(highFence.Settle(at(2), highFence.Owner(), answered)))},
			{10, 21, layered(forgets(highFence.Owner()), 1), yes},
			{10, 21, call{verb: drop, n: 1}, no},
			{11, 12, loads, told(absent)},
			{13, 14, loads, told(doneA)},
		}},
		{"a settle acts on a copy", false, []heard{
			{1, 2, claims(claimA), owned(runningA)},
			{3, 4, settles(runningA.Owner(), answered), owned(doneA)},
			{5, 10, layered(forgets(doneA.Owner()), 0), yes},
			{5, 10, call{verb: drop}, no},
			{6, 7, loads, told(absent)},
			{8, 9, settles(doneA.Owner(), answered), owned(doneA)},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := traceOf(row.said).Check(t.TempDir())
			var v *Violation
			switch {
			case row.ok && err != nil:
				t.Error(err)
			case !row.ok && !errors.As(err, &v):
				t.Errorf("it passes for possible: %v", err)
			}
		})
	}
}

func traceOf(said []heard) *Trace {
	t := &Trace{records: map[driver.ID][]porcupine.Operation{}}
	for i, h := range said {
		t.records[driver.ID{}] = append(t.records[driver.ID{}], porcupine.Operation{
			ClientId: i, Input: h.call, Call: h.from, Output: h.reply, Return: h.to,
		})
	}
	return t
}

func TestMoreForgetsThanTheModelKnowsAreRefused(t *testing.T) {
	t.Parallel()
	said := make([]heard, mostForgets)
	for i := range said {
		said[i] = heard{int64(2 * i), int64(2*i + 1), forgets(driver.Owner{}), no}
	}
	operations := traceOf(said).records[driver.ID{}]
	all, err := halved(slices.Clone(operations))
	if err != nil || len(all) != 2*mostForgets {
		t.Errorf("%d halves, %v", len(all), err)
	}
	if _, err := halved(append(operations, operations[0])); err == nil {
		t.Error("one more is taken")
	}
}

// Whatever the fence is that nobody was told of, one of the cases stands for it, and in each it is clear whether it is
// the owner's.
func TestAnOpenFenceIsDecidedInEachCase(t *testing.T) {
	t.Parallel()
	const least = 10
	open := known{rec: driver.Record{State: driver.Running, Token: tokenA, Fence: least}, open: fence | started}
	for _, by := range []uint64{least - 1, least, least + 1, least + 5} {
		for truth := uint64(least); truth < least+8; truth++ {
			for _, above := range []bool{false, true} {
				owner := driver.Owner{Fence: by, Token: tokenA, Above: above}
				owns := by == truth
				if above {
					owns = truth > by
				}
				found := false
				for _, k := range decided(open, owner) {
					_, owned := call{verb: settle, by: owner, outcome: driver.Outcome{State: driver.Free}}.apply(k.rec, at(0))
					stands := k.rec.Fence == truth || k.open.has(fence) && k.rec.Fence <= truth
					found = found || stands && owned == owns
					if !k.open.has(started) {
						t.Errorf("by %d: another field is no longer open", by)
					}
				}
				if !found {
					t.Errorf("fence %d, by %d, above %t: no case says that owned is %t", truth, by, above, owns)
				}
			}
		}
	}
	if all := decided(open, driver.Owner{Fence: least, Token: tokenB}); len(all) != 1 || !all[0].equals(open) {
		t.Errorf("another token decides %+v", all)
	}
}

func TestAViolationIsToldUpToTheFirstReplyThatCannotBe(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	err := traceOf([]heard{
		{1, 2, loads, told(absent)},
		{3, 4, claims(claimA), owned(runningA)},
		{5, 6, claims(claimB), told(runningA)},
		{7, 8, extends(driver.Owner{Fence: 1, Token: tokenB}, time.Hour), no},
		{9, 10, settles(runningA.Owner(), answered), owned(doneA)},
		{11, 14, loads, told(runningA)},
		{12, 13, claims(claimB), told(doneA)},
		{15, 16, claims(claimB), owned(runningB)},
	}).Check(folder)
	if err == nil {
		t.Fatal("it passes for possible")
	}
	run := "1900000000000/0a0000"
	running := "running " + run + ", attempt 1, rerun, lease left 1h0m0s"
	want := []string{
		"     3 –      4  client 1: Claim 0a0000 request 0, rerun, lease 1h0m0s → yes, " + running,
		"     9 –     10  client 4: Settle by " + run + `, done "paid" → yes, done ` + run + `, attempt 1, rerun "paid"`,
		"    11 –     14  client 5: Load → " + running,
	}
	lines := strings.Split(err.Error(), "\n\t")
	if len(lines) != 2+len(want) {
		t.Fatalf("told as\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	for i, line := range want {
		if lines[1+i] != line {
			t.Errorf("told\n%s\nwant\n%s", lines[1+i], line)
		}
	}
	pictures, globErr := filepath.Glob(filepath.Join(folder, "*.html"))
	if globErr != nil || len(pictures) != 1 || !strings.Contains(lines[0], pictures[0]) {
		t.Errorf("the pictures are %q, the message begins with %q", pictures, lines[0])
	}
}

func TestAViolationIsToldWithoutItsPictureIfThatFails(t *testing.T) {
	t.Parallel()
	err := traceOf([]heard{{1, 2, loads, told(doneA)}}).Check(filepath.Join(t.TempDir(), "nowhere"))
	var v *Violation
	if !errors.As(err, &v) || !errors.Is(err, os.ErrNotExist) || v.Picture != "" {
		t.Errorf("the error is %v", err)
	}
}

// Many replies that were lost can stand in more orders than can be looked through.
func TestASearchThatTakesTooLongIsUndecided(t *testing.T) {
	t.Parallel()
	said := []heard{{1, 2, claims(claimA), owned(runningA)}}
	for i := range 60 {
		said = append(said, heard{int64(3 + i), never, seizes(driver.Token{0xc, byte(i)}), lost})
	}
	said = append(said, heard{100, 101, loads, told(absent)})
	if err := traceOf(said).check(t.TempDir(), 50*time.Millisecond); !errors.Is(err, ErrUndecided) {
		t.Errorf("the error is %v", err)
	}
}
