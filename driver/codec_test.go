package driver

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	_ encoding.BinaryAppender    = (*Record)(nil)
	_ encoding.BinaryUnmarshaler = (*Record)(nil)
)

// golden reads a file of hexadecimal lines and comments.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			digits.WriteString(strings.TrimSpace(line))
		}
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}

// goldenRecord is the record in testdata/record-v1.hex.
func goldenRecord() Record {
	seq := func(from byte, n int) (b []byte) {
		for i := range n {
			b = append(b, from+byte(i))
		}
		return b
	}
	body := []byte{0, 15, 30, 45, 60, 75, 90, 105, 120, 135, 150, 165, 180, 195, 210, 225, 240, 255}
	return Record{
		State: Done, OnLost: Rerun, Begun: true, Maybe: true, Wrote: Done,
		Fence: 1700000000123, Token: Token(seq(0x10, 16)), Attempt: 3,
		Fingerprint: Fingerprint{Raw: [16]byte(seq(0x20, 16)), Canonical: [16]byte(seq(0x30, 16)), Settings: [8]byte(seq(0x40, 8))},
		Created:     1700000000000001, Started: 1700000000000002, LeaseEnd: 1700000030000002, Settled: 1700000000000003,
		Retention: 24 * time.Hour, Tombstone: 750_000_000_000_000,
		Operation: "POST /payments", Correlation: "corr-1", Error: "upstream: timeout",
		Response: &Response{
			Status:  201,
			Header:  http.Header{"Location": {"/payments/17"}, "Vary": {"Accept, Origin", ""}},
			Trailer: http.Header{"X-Sum": nil},
			Body:    append(body, strings.Repeat(`{"id":17}`, 14)...),
			Codec:   "gzip",
		},
		Sealed: []byte{0, 1, 2, 3},
	}
}

func encoded(t testing.TB, r Record) []byte {
	t.Helper()
	b, err := r.AppendBinary(nil)
	if err != nil {
		t.Fatalf("encode %+v: %v", r, err)
	}
	return b
}

func decoded(t testing.TB, b []byte) (r Record) {
	t.Helper()
	if err := r.UnmarshalBinary(b); err != nil {
		t.Fatalf("decode %x: %v", b, err)
	}
	return r
}

// patched returns b with a change, and with the CRC of its tail made right again.
func patched(b []byte, change func(b []byte) []byte) []byte {
	b = change(slices.Clone(b))
	if len(b) >= recordHeadSize {
		binary.BigEndian.PutUint32(b[offCRC:], crc32.Checksum(b[recordHeadSize:], castagnoli))
	}
	return b
}

// records outlive the version that wrote them, so the layout never changes. The files were written by another
// program, from the layout's description.
func TestR93_ARecordIsStoredAsEver(t *testing.T) {
	t.Parallel()
	want := golden(t, "record-v1.hex")
	if got := encoded(t, goldenRecord()); !bytes.Equal(got, want) {
		t.Errorf("encoded as\n%x, want\n%x", got, want)
	}
	if got := decoded(t, want); !reflect.DeepEqual(got, goldenRecord()) {
		t.Errorf("decoded as\n%+v, want\n%+v", got, goldenRecord())
	}
}

// a record of a later version passes through this one whole.
func TestR93_LaterFieldsAreKept(t *testing.T) {
	t.Parallel()
	later := golden(t, "record-v2.hex")
	r := decoded(t, later)
	if got := encoded(t, r); !bytes.Equal(got, later) {
		t.Errorf("encoded again as\n%x, want\n%x", got, later)
	}
	known := r
	known.unknown = ""
	if !reflect.DeepEqual(known, goldenRecord()) {
		t.Errorf("decoded as\n%+v, want\n%+v", known, goldenRecord())
	}

	// It keeps them through the verbs of an operation, and drops them with the operation.
	c := Claim{Fingerprint: r.Fingerprint, Token: theirs, OnLost: Rerun}
	run := r
	run.State, run.Wrote, run.Response, run.Begun = Running, Absent, nil, false
	taken := mustClaim(t, decoded(t, encoded(t, run)), run.LeaseEnd, c)
	done := decoded(t, encoded(t, mustSettle(t, taken, taken.Now, taken.Owner(), Outcome{State: Done})))
	if done.unknown != r.unknown || encoded(t, done)[offVersion] != 2 {
		t.Errorf("after a takeover and a settle the later fields are %q, want %q", done.unknown, r.unknown)
	}
	next := mustClaim(t, done, done.Settled.Add(done.Retention), c)
	if b := encoded(t, next); b[offVersion] != layoutVersion || bytes.Contains(b, []byte("later")) {
		t.Errorf("a new operation inherited later fields: %x", b)
	}

	// A later version that adds no field to this record is still the later version.
	bare := patched(golden(t, "record-v1.hex"), func(b []byte) []byte { b[offVersion] = 9; return b })
	if got := encoded(t, decoded(t, bare)); !bytes.Equal(got, bare) {
		t.Errorf("encoded again as\n%x, want\n%x", got, bare)
	}
}

// A script may change the header where it lies: fields are at their offsets, and the CRC does not cover them.
func TestTheHeaderOfARecordIsChangedInPlace(t *testing.T) {
	t.Parallel()
	run, _ := holding(Rerun)
	run.Now = 0
	for name, change := range map[string]struct {
		bytes  func(b []byte)
		fields func(r *Record)
	}{
		"state": {
			func(b []byte) { b[2], b[4] = 3, 3 },
			func(r *Record) { r.State, r.Wrote = Free, Free },
		},
		"begun":  {func(b []byte) { b[3] |= 1 }, func(r *Record) { r.Begun = true }},
		"maybe":  {func(b []byte) { b[3] |= 2 }, func(r *Record) { r.Maybe = true }},
		"seized": {func(b []byte) { b[2], b[3] = 4, 4 }, func(r *Record) { r.State, r.Seized = Unknown, true }},
		"steps":  {func(b []byte) { b[3] |= 8 }, func(r *Record) { r.Steps = true }},
		"owed":   {func(b []byte) { b[3] |= 16 }, func(r *Record) { r.Owed = true }},
		"policy": {func(b []byte) { b[5] = 0 }, func(r *Record) { r.OnLost = Hold }},
		"fence":  {func(b []byte) { binary.BigEndian.PutUint64(b[6:], math.MaxUint64) }, func(r *Record) { r.Fence = math.MaxUint64 }},
		"token":  {func(b []byte) { copy(b[14:30], theirs[:]) }, func(r *Record) { r.Token = theirs }},
		"times": {
			func(b []byte) {
				for i, at := range []int{30, 38, 46, 54} {
					binary.BigEndian.PutUint64(b[at:], uint64(i+1))
				}
			},
			func(r *Record) { r.Created, r.Started, r.LeaseEnd, r.Settled = 1, 2, 3, 4 },
		},
		"retention": {func(b []byte) { binary.BigEndian.PutUint64(b[62:], 5) }, func(r *Record) { r.Retention = 5 }},
		"tombstone": {func(b []byte) { binary.BigEndian.PutUint64(b[70:], 7) }, func(r *Record) { r.Tombstone = 7 }},
		"attempt":   {func(b []byte) { binary.BigEndian.PutUint32(b[78:], 6) }, func(r *Record) { r.Attempt = 6 }},
		"fingerprint": {
			func(b []byte) { b[86], b[102], b[118] = 7, 8, 9 },
			func(r *Record) {
				r.Fingerprint.Raw[0], r.Fingerprint.Canonical[0], r.Fingerprint.Settings[0] = 7, 8, 9
			},
		},
	} {
		b, want := encoded(t, run), run
		change.bytes(b)
		change.fields(&want)
		if got := decoded(t, b); !reflect.DeepEqual(got, want) {
			t.Errorf("%s changed in place: got\n%+v, want\n%+v", name, got, want)
		}
	}
}

// R-41a: what can't be read is an error that says so, and never a record.
func TestR41a_WhatCanNotBeReadIsNeverARecord(t *testing.T) {
	t.Parallel()
	whole := golden(t, "record-v1.hex")
	set := func(at int, to ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], to); return b }
	}
	tail := func(fields ...byte) func([]byte) []byte {
		return func(b []byte) []byte { return append(b[:recordHeadSize], fields...) }
	}
	answer := func(value ...byte) func([]byte) []byte {
		return tail(append([]byte{tagResponse, byte(len(value))}, value...)...)
	}
	for _, tt := range []struct {
		change func([]byte) []byte
		want   string
		reason string
	}{
		{func([]byte) []byte { return nil }, "0 bytes", "nothing"},
		{func(b []byte) []byte { return b[:125] }, "125 bytes, want at least 126", "less than a header"},
		{set(offVersion, 0), "layout version 0", "no version"},
		{set(offReadable, 0), "readable from 0", "no lowest version"},
		{set(offReadable, 2), "layout version 1, readable from 2", "readable only by later ones than wrote it"},
		{set(offVersion, 2, 2), "layout version 2, readable from 2 on, this is 1", "a later version that this one must not read"},
		{set(offState, 0), "state is absent", "absent is not stored"},
		{set(offState, 5), "state is state(5)", "no such state"},
		{set(offFlags, 32), "flags are 0x20 at byte 3", "a flag that may mean anything"},
		{set(offFlags, 4), "seized but done", "seized is a kind of unknown"},
		{set(offFlags, 16), "done, and owed", "done is the end that was owed"},
		{set(offWrote, 1), "outcome is running", "no outcome"},
		{set(offWrote, 5), "outcome is state(5)", "no such outcome"},
		{set(offOnLost, 2), "policy is lost-policy(2)", "no such policy"},
		{set(offState, 1), "running with an outcome", "a running record has not been settled"},
		{set(offState, 3), "free with an answer", "only done has an answer"},
		{set(offCreated, 0x80), "time before 1970", "created before the epoch"},
		{set(offStarted, 0x80), "time before 1970", "started before the epoch"},
		{set(offLeaseEnd, 0x80), "time before 1970", "lease over before the epoch"},
		{set(offSettled, 0x80), "time before 1970", "settled before the epoch"},
		{set(offRetention, 0, 0, 0, 0, 0, 0, 0, 0), "retention is 0 ns", "born expired"},
		{set(offRetention, 0x80), "retention is -", "expired before it was born"},

		{tail(0, 1, 'x'), "tag 0 after tag 0 at byte 126", "no such tag"},
		{tail(2, 1, 'x', 1, 1, 'x'), "tag 1 after tag 2 at byte 129", "fields out of order"},
		{tail(1, 1, 'x', 1, 1, 'x'), "tag 1 after tag 1 at byte 129", "a field twice"},
		{tail(1, 0), "field 1 is empty at byte 126", "an empty field is left out"},
		{tail(6, 1, 'x'), "tag 6 in layout version 1 at byte 126", "a field that this version does not have"},
		{tail(1), "length of field is malformed at byte 127", "no length"},
		{tail(1, 0x80), "length of field is malformed", "half a length"},
		{tail(1, 0x81, 0, 'x'), "not in its shortest form at byte 127", "a length written longer than needed"},
		{tail(1, 2, 'x'), "length of field is 2, but 1 bytes are left at byte 127", "a field cut off"},
		{tail(1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01), "length of field is 18446744073709551615", "the longest length"},
		{tail(1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02), "malformed", "a length of more than 64 bits"},
		{tail(5, 0xff, 0xff, 0xff, 0xff, 0x07, 'x'), "but 1 bytes are left", "two gigabytes that are not there"},

		{answer(0), "answer is too short at byte 128", "half a status"},
		{answer(0, 99, 0, 0, 0), "status is 99", "no HTTP status"},
		{answer(3, 0xe8, 0, 0, 0), "status is 1000", "no HTTP status either"},
		{answer(0, 200), "length of codec is malformed", "no codec"},
		{answer(0, 200, 9, 0, 0), "length of codec is 9, but 2 bytes are left at byte 130", "a codec longer than the answer"},
		{answer(0, 200, 0), "length of header is malformed", "no header"},
		{answer(0, 200, 0, 0), "length of trailer is malformed", "no trailer"},
		{answer(0, 200, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0), "length of header is 4294967295", "more names than bytes"},
		{answer(0, 200, 0, 2, 1, 'B', 0, 1, 'A', 0, 0), "names are not in order at byte 135", "names out of order"},
		{answer(0, 200, 0, 0, 2, 1, 'A', 0, 1, 'A', 0), "names are not in order", "a name twice"},
		{answer(0, 200, 0, 1, 1, 'A', 0xff, 0x7f, 0), "length of values is 16383", "more values than bytes"},
		{answer(0, 200, 0, 1, 1, 'A', 2, 1, 'x', 5), "length of value is 5", "a value longer than the answer"},
		{answer(0, 200, 0, 1, 5, 'A', 0), "length of name is 5", "a name longer than the answer"},
	} {
		kept := goldenRecord()
		err := kept.UnmarshalBinary(patched(whole, tt.change))
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: got %v, want unreadable: %q", tt.reason, err, tt.want)
		}
		if !reflect.DeepEqual(kept, goldenRecord()) {
			t.Errorf("%s: the record was changed to %+v", tt.reason, kept)
		}
	}
}

// R-41a: no damage to the tail goes unnoticed, and damage to the header gives no record that was never written so.
func TestR41a_DamageIsNoticed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"record-v1.hex", "record-v2.hex"} {
		whole := golden(t, name)
		for n := range whole {
			if err := new(Record).UnmarshalBinary(whole[:n]); !errors.Is(err, ErrUnreadable) {
				t.Errorf("%s cut to %d bytes: %v", name, n, err)
			}
		}
		if err := new(Record).UnmarshalBinary(append(slices.Clone(whole), 0)); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s with a byte more: %v", name, err)
		}
		for bit := range 8 * len(whole) {
			b := slices.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			var r Record
			err := r.UnmarshalBinary(b)
			switch {
			case err != nil && !errors.Is(err, ErrUnreadable):
				t.Errorf("%s, bit %d of byte %d: %v", name, bit%8, bit/8, err)
			case err != nil:
			case bit/8 >= recordHeadSize:
				t.Errorf("%s, bit %d of byte %d went unnoticed", name, bit%8, bit/8)
			case !bytes.Equal(encoded(t, r), b):
				t.Errorf("%s, bit %d of byte %d: encoded again as something else", name, bit%8, bit/8)
			}
		}
	}
}

func TestARecordThatCanNotBeIsNotEncoded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *Record){
		"state is absent":         func(r *Record) { r.State = Absent },
		"state is state(5)":       func(r *Record) { r.State = 5 },
		"outcome is running":      func(r *Record) { r.Wrote = Running },
		"policy is":               func(r *Record) { r.OnLost = 2 },
		"running with an outcome": func(r *Record) { r.State, r.Response = Running, nil },
		"done, and owed":          func(r *Record) { r.Owed = true },
		"seized but done":         func(r *Record) { r.Seized = true },
		"unknown with an answer":  func(r *Record) { r.State = Unknown },
		"time before 1970":        func(r *Record) { r.LeaseEnd = -1 },
		"retention is 0 ns":       func(r *Record) { r.Retention = 0 },
		"status is 7":             func(r *Record) { r.Response.Status = 7 },
		"status is -1":            func(r *Record) { r.Response.Status = -1 },
		"status is 65736":         func(r *Record) { r.Response.Status = 1<<16 + 200 },
	} {
		r := goldenRecord()
		change(&r)
		b, err := r.AppendBinary([]byte("kept"))
		if err == nil || !strings.Contains(err.Error(), name) || string(b) != "kept" {
			t.Errorf("%s: got %q, %v", name, b, err)
		}
	}
}

func TestARecordIsAppendedToWhatIsThere(t *testing.T) {
	t.Parallel()
	r := goldenRecord()
	prefix := []byte("prefix")
	for _, spare := range []int{0, 1, 1 << 12} {
		b, err := r.AppendBinary(slices.Grow(slices.Clone(prefix), spare))
		if err != nil || !bytes.HasPrefix(b, prefix) || !bytes.Equal(b[len(prefix):], golden(t, "record-v1.hex")) {
			t.Errorf("with %d bytes to spare: %x, %v", spare, b, err)
		}
	}
	r.Now = 12345
	if !bytes.Equal(encoded(t, r), golden(t, "record-v1.hex")) {
		t.Error("the moment of reading is stored")
	}
}

// Case 21: there is an answer or there is none, whatever is in it.
func TestCase21_EmptyAnswersAreAnswers(t *testing.T) {
	t.Parallel()
	record := func(p *Response) Record {
		run, owner := holding(Hold)
		r := mustSettle(t, run, t0, owner, Outcome{State: Done, Response: p})
		r.Now = 0
		return r
	}
	if got := decoded(t, encoded(t, record(nil))); got.Response != nil {
		t.Errorf("no answer became %+v", got.Response)
	}
	for _, p := range []Response{
		{},
		{Status: 204},
		{Status: 100},
		{Status: 999},
		{Status: 200, Body: []byte("0")},
		{Status: 200, Body: []byte("null")},
		{Status: 200, Body: []byte("false")},
		{Status: 200, Body: []byte{0}},
		{Status: 200, Body: []byte{0xff, 0xfe, 0, '\r', '\n'}},
		{Status: 200, Codec: "gzip"},
	} {
		got := decoded(t, encoded(t, record(&p)))
		if !reflect.DeepEqual(got, record(&p)) {
			t.Errorf("%+v became %+v", p, got.Response)
		}
	}
	empty := Response{Status: 200, Header: http.Header{}, Trailer: http.Header{}, Body: []byte{}}
	got := decoded(t, encoded(t, record(&empty))).Response
	if got == nil || got.Status != 200 || len(got.Header) != 0 || len(got.Trailer) != 0 || len(got.Body) != 0 {
		t.Errorf("an empty answer became %+v", got)
	}
	if !bytes.Equal(encoded(t, record(&empty)), encoded(t, record(&Response{Status: 200}))) {
		t.Error("nil and empty have two forms")
	}
}

// Case 19: values stay as many as they were, in their order, unsplit, under their names as they were written.
func TestR35_Case19_HeadersAreExact(t *testing.T) {
	t.Parallel()
	many := http.Header{}
	for i := range 100 {
		for j := range i % 4 {
			many.Add(fmt.Sprintf("X-Header-%d", i), fmt.Sprintf("value %d", j))
		}
	}
	long := http.Header{"A": slices.Repeat([]string{"v"}, 300), "B": {strings.Repeat("w", 70_000)}}
	for _, h := range []http.Header{
		{"Link": {"<a>; rel=next, <b>; rel=prev", "<c>"}, "Vary": {"Accept", "Accept"}},
		{"Empty": {""}, "Empties": {"", "", ""}},
		{"Content-Type": nil, "Date": nil}, // net/http: don't add this field by yourself
		{"x-lower": {"1"}, "X-Lower": {"2"}, "": {"nameless"}},
		{"Bytes": {"\x00\xff\r\n"}},
		many,
		long,
	} {
		r := goldenRecord()
		r.Response.Header, r.Response.Trailer = h, h
		want := encoded(t, r)
		got := decoded(t, want)
		if !reflect.DeepEqual(got.Response, r.Response) {
			t.Errorf("%v became %v, trailer %v", h, got.Response.Header, got.Response.Trailer)
		}
		for range 20 { // the order of a map is another each time
			if !bytes.Equal(encoded(t, r), want) {
				t.Fatalf("%v has two forms", h)
			}
		}
		for name := range got.Response.Header { // one name's values must not run into another's
			_ = append(got.Response.Header[name], "more")
		}
		if !bytes.Equal(encoded(t, got), want) {
			t.Errorf("%v: values share room", h)
		}
	}
}

func TestADecodedRecordKeepsNothingOfTheData(t *testing.T) {
	t.Parallel()
	data := golden(t, "record-v2.hex")
	r := decoded(t, data)
	want := encoded(t, r)
	for i := range data {
		data[i] ^= 0xff
	}
	if got := encoded(t, r); !bytes.Equal(got, want) {
		t.Error("the record changed with the data that it was read from")
	}
	_ = append(r.Response.Body, r.Sealed...)
	if got := encoded(t, r); !bytes.Equal(got, want) {
		t.Error("the record's slices share room")
	}
}

// Into room that is large enough a record is written without taking memory. Not parallel, as AllocsPerRun demands.
func TestEncodingARecordTakesNoMemory(t *testing.T) {
	r := decoded(t, golden(t, "record-v2.hex"))
	size, _ := r.size()
	if n := len(encoded(t, r)); n != size {
		t.Errorf("makes room for %d bytes, and writes %d", size, n)
	}
	buf := make([]byte, 0, size)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.AppendBinary(buf); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// What decodes has one form, as it came and with its CRC made right, so that the fuzzer gets past it.
func FuzzRecordDecode(f *testing.F) {
	run, _ := holding(Hold)
	f.Add([]byte{})
	f.Add(encoded(f, run))
	f.Add(golden(f, "record-v1.hex"))
	f.Add(golden(f, "record-v2.hex"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, b := range [][]byte{data, patched(data, func(b []byte) []byte { return b })} {
			var r Record
			if err := r.UnmarshalBinary(b); err != nil {
				if !errors.Is(err, ErrUnreadable) || !reflect.DeepEqual(r, Record{}) {
					t.Fatalf("%v, record %+v", err, r)
				}
				continue
			}
			if again := encoded(t, r); !bytes.Equal(again, b) {
				t.Fatalf("decoded\n%x, encoded again as\n%x", b, again)
			}
			for _, caller := range []LostPolicy{Hold, Rerun} {
				r.Now = r.LeaseEnd
				r.Reads(caller)
			}
			r.Expired(r.Settled)
		}
	})
}

func FuzzRecordRoundTrip(f *testing.F) {
	f.Add(uint8(Done), uint8(0), uint8(Done), uint64(1), int64(t0), int64(time.Hour), uint32(1), []byte("token and fingerprint"), "POST /", "c", "", 201, "A", "x\ny", "B", []byte("body"), []byte(nil))
	f.Add(uint8(Unknown), uint8(7), uint8(Absent), uint64(math.MaxUint64), int64(math.MaxInt64), int64(Forever), uint32(math.MaxUint32), []byte{}, "", "", "lost", 0, "", "", "", []byte{}, []byte("sealed"))
	f.Add(uint8(Running), uint8(3), uint8(Absent), uint64(0), int64(0), int64(1), uint32(0), []byte{1}, "\x00", strings.Repeat("c", 200), "", 0, "Z", "", "Z", []byte{}, []byte{0})
	f.Add(uint8(Free), uint8(48), uint8(Free), uint64(9), int64(t0), int64(time.Hour), uint32(2), []byte{2}, "POST /", "c", "503", 0, "", "", "", []byte(nil), []byte("sealed"))
	f.Fuzz(func(t *testing.T, state, flags, wrote uint8, fence uint64, at, retention int64, attempt uint32, digits []byte,
		operation, correlation, reason string, status int, name, values, trailer string, body, sealed []byte,
	) {
		r := Record{
			State: State(state), OnLost: LostPolicy(flags >> 3 & 1), Begun: flags&1 != 0, Maybe: flags&2 != 0, Seized: flags&4 != 0,
			Steps: flags&16 != 0, Owed: flags&32 != 0,
			Wrote: State(wrote), Fence: fence, Attempt: attempt,
			Created: Time(at), Started: Time(at / 2), LeaseEnd: Time(at / 3), Settled: Time(at / 4), Retention: time.Duration(retention),
			Operation: operation, Correlation: correlation, Error: reason, Sealed: slices.Clone(sealed),
		}
		copy(r.Token[:], digits)
		copy(r.Fingerprint.Raw[:], digits)
		copy(r.Fingerprint.Canonical[:], correlation)
		copy(r.Fingerprint.Settings[:], operation)
		if r.State == Done && flags&0x80 == 0 {
			r.Response = &Response{
				Status: status, Body: slices.Clone(body), Codec: trailer,
				Header:  http.Header{name: strings.Split(values, "\n"), trailer: nil},
				Trailer: http.Header{trailer: {values}},
			}
		}
		b, err := r.AppendBinary(nil)
		if err != nil {
			if r.check() == nil {
				t.Fatalf("a record that can be is refused: %v", err)
			}
			return
		}
		if size, _ := r.size(); size != len(b) {
			t.Fatalf("makes room for %d bytes, and writes %d", size, len(b))
		}
		got := decoded(t, b)
		if len(r.Sealed) == 0 {
			r.Sealed = nil
		}
		if r.Response != nil && len(r.Response.Body) == 0 {
			r.Response.Body = nil
		}
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v became %+v", r, got)
		}
	})
}

func BenchmarkRecordEncode(b *testing.B) {
	r := goldenRecord()
	buf := make([]byte, 0, 1<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(encoded(b, r))))
	for b.Loop() {
		if _, err := r.AppendBinary(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecordDecode(b *testing.B) {
	data := encoded(b, goldenRecord())
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := new(Record).UnmarshalBinary(data); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAnAnswerIsKeptByItself(t *testing.T) {
	t.Parallel()
	want := goldenRecord().Response
	data, err := want.AppendBinary([]byte("prefix"))
	if err != nil || !bytes.HasPrefix(data, []byte("prefix")) {
		t.Fatalf("%x, %v", data, err)
	}
	data = data[len("prefix"):]
	var got Response
	if err := got.UnmarshalBinary(data); err != nil || !reflect.DeepEqual(&got, want) {
		t.Errorf("decoded as %+v, %v, want %+v", got, err, want)
	}
	for i := range data {
		for _, broken := range [][]byte{data[:i], append(bytes.Clone(data[:i]), append([]byte{data[i] ^ 0x40}, data[i+1:]...)...)} {
			kept := Response{Status: 299}
			if err := kept.UnmarshalBinary(broken); err == nil && i != 0 {
				t.Errorf("damaged at byte %d, decoded as %+v", i, kept)
			} else if err != nil && (!errors.Is(err, ErrUnreadable) || kept.Status != 299) {
				t.Errorf("damaged at byte %d: %v, left as %+v", i, err, kept)
			}
		}
	}
	later := bytes.Clone(data)
	later[0], later[1] = 9, 9
	if err := got.UnmarshalBinary(later); !errors.Is(err, ErrUnreadable) {
		t.Errorf("of a later layout: %v", err)
	}
}
