package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
)

// What most verbs find needs no script, which costs the server several times what a native command does: a claim finds a
// new key, a record that is done, or one whose run is at work; a settle finds the record as this process claimed it. All
// else is left to the scripts, whose reply is the same.

const (
	// exact is the time up to which numbers in scripts are exact.
	exact = driver.Time(1) << 53
	// shortest is the shortest lease that is claimed natively: trips must be short beside it.
	shortest = time.Second
)

// claimNatively claims a key that holds nothing, and is refused by one whose record says enough. It reports false if the
// script must decide; then it may own already, and the script knows that by the token.
func (s *Store) claimNatively(ctx context.Context, id *driver.ID, key string, c *driver.Claim) (rec driver.Record, owned, decided bool, err error) {
	now, ok := s.now(ctx)
	if !ok {
		return rec, false, false, nil
	}
	rec, _ = driver.Record{}.Claim(now.high, *c)
	px, lasting := keyLife(&rec, now)
	if c.Lease < shortest || rec.LeaseEnd >= exact || !lasting {
		return rec, false, false, nil
	}
	frame, err := encodeFrame(&rec)
	if err != nil {
		return rec, false, false, err
	}
	q := question{key: key, frame: frame}
	if px > 0 {
		q.px = strconv.FormatInt(px, 10)
	}
	got, taken, err := s.writes.ask(ctx, q)
	switch {
	case err != nil && scriptHelps(err), err == nil && !now.settled(min(promptly, c.Lease/10)):
		return rec, false, false, nil
	case err != nil:
		return rec, false, false, interpretError(err)
	case !taken:
		s.runs.put(id, &rec)
		return rec, true, true, nil
	}
	before, unreadable := readFrame(got)
	refused := unreadable == nil && refuses(&before, now.high, c)
	if refused {
		s.finished.note(id, before.State == driver.Done)
	}
	return before, false, refused, nil
}

// refuses reports whether a record that a native claim has found refuses it for sure: it is done, or its run is at work.
// The lease of that was valid when the claim was sent, or when it was written, if that was later.
func refuses(rec *driver.Record, now driver.Time, c *driver.Claim) bool {
	if rec.State == driver.Running && rec.Token != c.Token && now < rec.LeaseEnd {
		rec.Now = max(now, rec.Started)
		return true
	}
	return replayed(rec, now, c.OnLost)
}

// settleNatively settles a run as done with an answer, if the record is still as this process claimed it. It reports
// false if the script must decide.
func (s *Store) settleNatively(ctx context.Context, id *driver.ID, key string, by driver.Owner, o *driver.Outcome) (rec driver.Record, decided bool, err error) {
	run := s.runs.take(id)
	if run == nil || run.Owner() != by || o.State != driver.Done || o.Response == nil || o.Error != "" {
		return rec, false, nil
	}
	now, ok := s.now(ctx)
	if !ok {
		return rec, false, nil
	}
	rec, _ = run.Settle(max(now.high, run.Started), by, *o)
	px, lasting := keyLife(&rec, now)
	if px == 0 || !lasting {
		return rec, false, nil
	}
	frame, err := encodeFrame(&rec)
	if err != nil {
		return rec, false, err
	}
	q := question{key: key, head: runHead(frame), frame: frame, px: strconv.FormatInt(px, 10)}
	if s.channel != "" {
		q.told = string(id[:])
	}
	got, _, err := s.writes.ask(ctx, q)
	switch {
	case err != nil && !errors.Is(err, ErrMemory):
		return rec, false, err
	case got != "1":
		return rec, false, nil
	}
	now.settled(promptly) // what was written stays
	s.finished.note(id, true)
	return rec, true, nil
}

// writeAlone sends a claim as a native command, and a settle as a script.
func (s *Store) writeAlone(ctx context.Context, q *question) (text string, ok bool, err error) {
	switch {
	case q.head != "":
		text, err = writeScript.tell(ctx, s.texts, q.key, s.appendWrite([]string{s.channel}, q)...)
		return text, err == nil, err
	case q.px == "":
		return doText(ctx, s.texts, q.key, "SET", q.key, q.frame, "NX", "GET")
	}
	return doText(ctx, s.texts, q.key, "SET", q.key, q.frame, "NX", "GET", "PX", q.px)
}

// writeTogether sends claims and settles in one script.
func (s *Store) writeTogether(ctx context.Context, all []*waiter) (any, error) {
	command := append(make([]any, 0, 4+5*len(all)), "EVALSHA", writeScript.digest, strconv.Itoa(len(all)))
	for _, w := range all {
		command = append(command, w.key)
	}
	command = append(command, s.channel)
	for _, w := range all {
		command = append(command, w.head, w.frame, w.px)
		if s.channel != "" {
			command = append(command, w.told)
		}
	}
	return writeScript.send(ctx, s.client, all[0].key, command)
}

func (s *Store) appendWrite(args []string, q *question) []string {
	args = append(args, q.head, q.frame, q.px)
	if s.channel != "" {
		args = append(args, q.told)
	}
	return args
}

// now reads the clock, if native commands can be used.
func (s *Store) now(ctx context.Context) (reading, bool) {
	if !s.native {
		return reading{}, false
	}
	return s.clock.read(func() { s.askTime(ctx) })
}

// askTime asks the server for its time. A failure leaves it to a script to tell it.
func (s *Store) askTime(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	sent := time.Now()
	if told, err := timeOf(ctx, s.client); err == nil {
		s.clock.set(told, sent, time.Now())
	}
}

// scriptHelps reports whether a script may do what a native command was refused: a server whose memory is used up refuses
// SET even where it would write nothing, and one older than it said does not know NX with GET.
func scriptHelps(err error) bool {
	return codeOf(err) == "OOM" || strings.Contains(err.Error(), "syntax error")
}

// keyLife returns in how many milliseconds the key of a record ends that is written at a time, 0 if never: not before the
// record expires, and not before the clock is fenceLife past its fence. It reports false if no PX says that.
func keyLife(rec *driver.Record, now reading) (px int64, ok bool) {
	at := rec.Expires()
	if at == driver.Time(0).Add(driver.Forever) {
		return 0, true
	}
	at = max(at, keptFor(rec.Fence))
	return at.Sub(now.low).Milliseconds() + 2, at < exact
}

// keptFor returns the time until which a key stays for the sake of a fence.
func keptFor(fence uint64) driver.Time {
	if fence >= uint64(exact)/1000 {
		return exact
	}
	return driver.Time(fence * 1000).Add(fenceLife)
}

// replayed reports whether a record that a key shows is an answer that refuses every claim, and sets the time at which it
// does. The key is there only until the retention ends on the server's clock, unless it must outlive that for its fence.
func replayed(rec *driver.Record, now driver.Time, caller driver.LostPolicy) bool {
	if rec.State != driver.Done || rec.Tombstone > 0 || rec.Kept() < keptFor(rec.Fence) {
		return false
	}
	rec.Now = min(max(now, rec.Settled), rec.Kept()-1)
	return rec.Reads(caller) == driver.ReadsDone
}

// runHead returns the beginning that the frame of a run without flags has, from the frame that the run ends with. Every
// verb that changes the record changes it.
func runHead(ended string) string {
	b := []byte(ended[:offSettled])
	b[offState], b[offFlags], b[offWrote] = byte(driver.Running), 0, byte(driver.Absent)
	return string(b)
}

// Runs are those that this process has claimed natively, of which each slot keeps one. A settle of one of them need not
// read the record.
type runs struct {
	slots [1 << 14]atomic.Pointer[ownRun]
}

type ownRun struct {
	id driver.ID
	driver.Record
}

func (r *runs) slot(id *driver.ID) *atomic.Pointer[ownRun] {
	return &r.slots[binary.LittleEndian.Uint64(id[16:])>>1%uint64(len(r.slots))]
}

// maxOwnRun is how many bytes of names and sealed request a run may have that is kept.
const maxOwnRun = 1 << 10

func (r *runs) put(id *driver.ID, rec *driver.Record) {
	if rec.Tombstone == 0 && len(rec.Operation)+len(rec.Correlation)+len(rec.Sealed) <= maxOwnRun {
		r.slot(id).Store(&ownRun{*id, *rec})
	}
}

// take returns the run of an operation, or nil, and drops it.
func (r *runs) take(id *driver.ID) *driver.Record {
	slot := r.slot(id)
	run := slot.Load()
	if run == nil || run.id != *id {
		return nil
	}
	slot.CompareAndSwap(run, nil)
	return &run.Record
}
