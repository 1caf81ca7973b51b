package redisstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
)

func claimOf(t *testing.T) driver.Claim {
	t.Helper()
	return driver.Claim{
		Fingerprint: driver.Fingerprint{
			Raw: [16]byte(bytes.Repeat([]byte{0xa1}, 16)), Canonical: [16]byte(bytes.Repeat([]byte{0xa2}, 16)),
			Settings: [8]byte(bytes.Repeat([]byte{0xa3}, 8)),
		},
		Token:     driver.Token(bytes.Repeat([]byte{0xa4}, 16)),
		Retention: 0x0102030405060708, Tombstone: 0x1112131415161718,
		OnLost: driver.Rerun, Operation: "POST /payments", Correlation: "correlation", Sealed: []byte("sealed"),
	}
}

func frameOf(t *testing.T) string {
	t.Helper()
	c := claimOf(t)
	frame, err := newFrame(&c)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// The scripts name positions as numbers; the head is package semel's, which must not move it.
func TestTheHeadIsWhereTheScriptsLook(t *testing.T) {
	t.Parallel()
	frame := frameOf(t)
	for _, row := range []struct {
		at   int // from 1, as in Lua
		want string
		what string
	}{
		{1, "\x01", "frame version"},
		{3, "\x01", "lowest layout version"},
		{4, "\x01", "state"},
		{5, "\x00", "flags"},
		{6, "\x00", "outcome"},
		{7, "\x01", "lost policy"},
		{8, strings.Repeat("\x00", 8), "fence"},
		{16, strings.Repeat("\xa4", 16), "token"},
		{32, strings.Repeat("\x00", 32), "times"}, // the first is when the operation was created
		{64, "\x01\x02\x03\x04\x05\x06\x07\x08", "retention"},
		{72, "\x11\x12\x13\x14\x15\x16\x17\x18", "tombstone"},
		{80, "\x00\x00\x00\x01", "attempt"},
		{88, strings.Repeat("\xa1", 16), "raw fingerprint"},
		{104, strings.Repeat("\xa2", 16), "canonical fingerprint"},
		{120, strings.Repeat("\xa3", 8), "settings"},
		{128, "\x00", "apart"},
		{129, "\x00\x00\x00\x12", "length of the operation, with its CRC"},
		{153, "POST /payments", "operation"},
	} {
		if got := frame[row.at-1:]; !strings.HasPrefix(got, row.want) {
			t.Errorf("%s at %d: %q, want %q", row.what, row.at, got[:len(row.want)], row.want)
		}
	}
	flags := driver.Record{State: driver.Unknown, Begun: true, Maybe: true, Seized: true, Steps: true, Owed: true, Retention: 1}
	b, err := flags.AppendBinary(nil)
	if err != nil || b[3] != 31 {
		t.Errorf("all flags are %d, error %v; the scripts know 31", b[3], err)
	}
}

func TestAFrameIsItsRecord(t *testing.T) {
	t.Parallel()
	c := claimOf(t)
	rec, err := readFrame(frameOf(t))
	if err != nil {
		t.Fatal(err)
	}
	if rec.State != driver.Running || rec.Operation != c.Operation || rec.Correlation != c.Correlation ||
		!bytes.Equal(rec.Sealed, c.Sealed) || rec.Retention != c.Retention || rec.Tombstone != c.Tombstone || rec.Attempt != 1 {
		t.Errorf("it reads as %+v", rec)
	}
}

// R-41a, R-93: what can't be read is never absent, whichever byte is damaged, and neither is what only a later version
// can read.
func TestR41a_DamageIsUnreadable(t *testing.T) {
	t.Parallel()
	frame := frameOf(t)
	for cut := 1; cut < len(frame); cut++ {
		if rec, err := readFrame(frame[:cut]); !errors.Is(err, driver.ErrUnreadable) {
			t.Fatalf("cut to %d bytes it reads as %s, error %v", cut, rec.State, err)
		}
	}
	damaged := func(at int, to byte) string {
		b := []byte(frame)
		b[at] = to
		return string(b)
	}
	for at := offLengths; at < len(frame); at++ {
		if rec, err := readFrame(damaged(at, frame[at]^0x11)); !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("with byte %d damaged it reads as %s, error %v", at, rec.State, err)
		}
	}
	for what, f := range map[string]string{
		"a later frame version":         damaged(0, frameVersion+1),
		"a later layout version":        damaged(1, layoutVersion+1)[:2] + string(rune(layoutVersion+1)) + frame[3:],
		"state 0":                       damaged(offState, 0),
		"a state that there is not":     damaged(offState, 9),
		"a flag that there is not":      damaged(4, 32),
		"an answer that is apart":       damaged(offApart, 1),
		"a mark of another version":     "\x02\x01\x01\x00\x00\x00\x00" + "12345678",
		"something behind":              frame + "x",
		"a text":                        "OK",
		"a number":                      "1",
		"what another program has left": strings.Repeat("x", 500),
	} {
		if rec, err := readFrame(f); !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("%s reads as %s, error %v", what, rec.State, err)
		}
	}
}

func TestR93_WhatALaterVersionAddsIsPassedOver(t *testing.T) {
	t.Parallel()
	frame := frameOf(t)
	at := func(part int) int { return offLengths + 4*part }
	before := frameHead
	for part := range partMore {
		before += int(binary.BigEndian.Uint32([]byte(frame[at(part) : at(part)+4])))
	}
	const more = "what a later version knows"
	later := frame[:at(partMore)] + "\x00\x00\x00" + string(rune(len(more))) + frame[at(partSealed):before] + more + frame[before:]
	rec, err := readFrame(later)
	if err != nil || string(rec.Sealed) != "sealed" || rec.Operation != "POST /payments" {
		t.Errorf("it reads as %+v, error %v", rec, err)
	}
}

func TestAMarkIsAnAbsentRecordWithAFence(t *testing.T) {
	t.Parallel()
	rec, err := readFrame("\x01\x01\x01\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x01\x02")
	if err != nil || rec.State != driver.Absent || rec.Fence != 258 {
		t.Errorf("it reads as %s with fence %d, error %v", rec.State, rec.Fence, err)
	}
}

func TestScriptsAreToldMicroseconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Second:        "1000000",
		time.Nanosecond:    "0",
		driver.Forever:     never,
		driver.Forever - 1: "9223372036854775",
	} {
		if got := micros(d); got != want {
			t.Errorf("%d ns are %q, want %q", d, got, want)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	c := driver.Claim{Retention: time.Hour, Operation: "POST /", Correlation: "c", Sealed: []byte("s")}
	frame, err := newFrame(&c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame)
	f.Add(frame[:frameHead])
	f.Add("\x01\x01\x01\x00\x00\x00\x00" + "12345678")
	f.Fuzz(func(t *testing.T, frame string) {
		rec, err := readFrame(frame)
		if err != nil && !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("error %v", err)
		}
		if err == nil && rec.State == driver.Absent && frame != "" && len(frame) != markSize {
			t.Errorf("%q reads as absent", frame)
		}
	})
}
