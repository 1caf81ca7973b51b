package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/wire"
)

// The binary form of a record, for stores that keep a record as one string. It is a header of fixed size and a tail.
// The fixed size lets a script in a store compare and change the header's fields in place. Numbers in the header are
// big-endian, so that fences and times can be compared as bytes too.
//
//	 at size
//	  0    1  layout version
//	  1    1  lowest layout version that can read it
//	  2    1  state
//	  3    1  flags: 1 begun, 2 maybe, 4 seized, 8 steps, 16 owed
//	  4    1  the outcome that (fence, token) wrote
//	  5    1  lost policy
//	  6    8  fence
//	 14   16  token
//	 30    8  created   ┐
//	 38    8  started   │ microseconds since the Unix epoch on the store's clock,
//	 46    8  lease end │ 0 if not set
//	 54    8  settled   ┘
//	 62    8  retention, in nanoseconds
//	 70    8  tombstone, in nanoseconds
//	 78    4  attempt
//	 82    4  CRC-32C of the tail; the header is left out, so that a script need not compute it
//	 86   16  raw fingerprint
//	102   16  canonical fingerprint
//	118    8  fingerprint settings
//	126       tail
//
// The tail is a sequence of fields, in ascending order of tags, without empty fields. Each field is a tag byte, a
// length and a value. Lengths and counts in the tail are unsigned varints in their shortest form. An answer is
//
//	status (2 bytes, big-endian), codec, header, trailer, body
//
// where codec is its length and its bytes. Header and trailer begin with the number of names. Then, for each name in
// ascending order, come its length and bytes, the number of values, and each value in its order as length and bytes.
// The body is the rest.
//
// Every record has exactly one form, and a form is accepted only if it is the one form of its record.
//
// A later version adds tags above those known here, and raises the first byte. It raises the second byte if a reader
// that skips the new tags would go wrong; new flags and states always require this. A reader keeps the version and the
// tags that it does not know, and writes them back.
const (
	layoutVersion  = 1 // the version that this code writes
	layoutReadable = 1 // the lowest version that can read that version

	offVersion     = 0
	offReadable    = 1
	offState       = 2
	offFlags       = 3
	offWrote       = 4
	offOnLost      = 5
	offFence       = 6
	offToken       = 14
	offCreated     = 30
	offStarted     = 38
	offLeaseEnd    = 46
	offSettled     = 54
	offRetention   = 62
	offTombstone   = 70
	offAttempt     = 78
	offCRC         = 82
	offRaw         = 86
	offCanonical   = 102
	offSettings    = 118
	recordHeadSize = 126
)

const (
	flagBegun = 1 << iota
	flagMaybe
	flagSeized
	flagSteps
	flagOwed
	flagsKnown = 1<<iota - 1
)

const (
	tagOperation = 1 + iota
	tagCorrelation
	tagError
	tagResponse
	tagSealed
	tagLast = tagSealed
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendBinary appends the record's binary form to b. It implements [encoding.BinaryAppender]. Now is left out. It
// fails only for a record to which no sequence of verbs leads, for example an absent one; b is then returned as it was.
func (r *Record) AppendBinary(b []byte) ([]byte, error) {
	if err := r.check(); err != nil {
		return b, fmt.Errorf("encode record: %w", err)
	}
	size, answer := r.size()
	start := len(b)
	out := slices.Grow(b, size)

	version, readable, unknown := byte(layoutVersion), byte(layoutReadable), ""
	if r.unknown != "" {
		version, readable, unknown = r.unknown[0], r.unknown[1], r.unknown[2:]
	}
	var flags byte
	if r.Begun {
		flags |= flagBegun
	}
	if r.Maybe {
		flags |= flagMaybe
	}
	if r.Seized {
		flags |= flagSeized
	}
	if r.Steps {
		flags |= flagSteps
	}
	if r.Owed {
		flags |= flagOwed
	}
	out = append(out, version, readable, byte(r.State), flags, byte(r.Wrote), byte(r.OnLost))
	out = binary.BigEndian.AppendUint64(out, r.Fence)
	out = append(out, r.Token[:]...)
	for _, t := range [...]Time{r.Created, r.Started, r.LeaseEnd, r.Settled} {
		out = binary.BigEndian.AppendUint64(out, uint64(t))
	}
	out = binary.BigEndian.AppendUint64(out, uint64(r.Retention))
	out = binary.BigEndian.AppendUint64(out, uint64(r.Tombstone))
	out = binary.BigEndian.AppendUint32(out, r.Attempt)
	out = append(out, 0, 0, 0, 0) // the CRC, once there is a tail
	out = append(out, r.Fingerprint.Raw[:]...)
	out = append(out, r.Fingerprint.Canonical[:]...)
	out = append(out, r.Fingerprint.Settings[:]...)

	out = wire.AppendField(out, tagOperation, r.Operation)
	out = wire.AppendField(out, tagCorrelation, r.Correlation)
	out = wire.AppendField(out, tagError, r.Error)
	if r.Response != nil {
		out = append(out, tagResponse)
		out = binary.AppendUvarint(out, uint64(answer))
		out = r.Response.append(out)
	}
	out = wire.AppendField(out, tagSealed, r.Sealed)
	out = append(out, unknown...)

	head := out[start:]
	binary.BigEndian.PutUint32(head[offCRC:], crc32.Checksum(head[recordHeadSize:], castagnoli))
	return out, nil
}

// UnmarshalBinary sets the record to the one whose binary form data is, with Now zero. It implements
// [encoding.BinaryUnmarshaler]: it keeps no part of data. If data is not the form of a record, or if only a later
// version can read it, the record stays as it was. Then the error wraps [ErrUnreadable] and says what is wrong, and
// where. It takes no more memory than a small multiple of data.
func (r *Record) UnmarshalBinary(data []byte) error {
	var n Record
	if err := n.decode(data); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	*r = n
	return nil
}

// check reports a combination of fields to which no sequence of verbs leads. It takes the place of a checksum of the
// header.
func (r *Record) check() error {
	switch {
	case r.State == Absent || r.State > Unknown:
		return fmt.Errorf("state is %v", r.State)
	case r.Wrote == Running || r.Wrote > Unknown:
		return fmt.Errorf("outcome is %v", r.Wrote)
	case r.OnLost > Rerun:
		return fmt.Errorf("policy is %v", r.OnLost)
	case r.State == Running && r.Wrote != Absent:
		return errors.New("running with an outcome")
	case r.Seized && r.State != Unknown:
		return fmt.Errorf("seized but %v", r.State)
	case r.Owed && r.State == Done:
		return errors.New("done, and owed")
	case r.Response != nil && r.State != Done:
		return fmt.Errorf("%v with an answer", r.State)
	case r.Created < 0, r.Started < 0, r.LeaseEnd < 0, r.Settled < 0:
		return errors.New("time before 1970")
	case r.Retention <= 0: // else the record would be expired from the start
		return fmt.Errorf("retention is %d ns", r.Retention)
	case r.Tombstone < 0:
		return fmt.Errorf("tombstone is %d ns", r.Tombstone)
	}
	return r.Response.check()
}

func (r *Record) decode(data []byte) error {
	if len(data) < recordHeadSize {
		return fmt.Errorf("%d bytes, want at least %d", len(data), recordHeadSize)
	}
	version, readable := data[offVersion], data[offReadable]
	switch {
	case version == 0 || readable == 0 || readable > version:
		return fmt.Errorf("layout version %d, readable from %d on", version, readable)
	case readable > layoutVersion:
		return fmt.Errorf("layout version %d, readable from %d on, this is %d", version, readable, layoutVersion)
	}
	flags := data[offFlags]
	if flags&^flagsKnown != 0 {
		return fmt.Errorf("flags are %#02x at byte %d", flags, offFlags)
	}
	*r = Record{
		State:     State(data[offState]),
		OnLost:    LostPolicy(data[offOnLost]),
		Begun:     flags&flagBegun != 0,
		Maybe:     flags&flagMaybe != 0,
		Seized:    flags&flagSeized != 0,
		Steps:     flags&flagSteps != 0,
		Owed:      flags&flagOwed != 0,
		Wrote:     State(data[offWrote]),
		Fence:     binary.BigEndian.Uint64(data[offFence:]),
		Token:     Token(data[offToken:]),
		Attempt:   binary.BigEndian.Uint32(data[offAttempt:]),
		Created:   Time(binary.BigEndian.Uint64(data[offCreated:])),
		Started:   Time(binary.BigEndian.Uint64(data[offStarted:])),
		LeaseEnd:  Time(binary.BigEndian.Uint64(data[offLeaseEnd:])),
		Settled:   Time(binary.BigEndian.Uint64(data[offSettled:])),
		Retention: time.Duration(binary.BigEndian.Uint64(data[offRetention:])),
		Tombstone: time.Duration(binary.BigEndian.Uint64(data[offTombstone:])),
		Fingerprint: Fingerprint{
			Raw:       [16]byte(data[offRaw:]),
			Canonical: [16]byte(data[offCanonical:]),
			Settings:  [8]byte(data[offSettings:]),
		},
	}
	tail := data[recordHeadSize:]
	if got, want := crc32.Checksum(tail, castagnoli), binary.BigEndian.Uint32(data[offCRC:]); got != want {
		return fmt.Errorf("tail of %d bytes has CRC %08x, want %08x", len(tail), got, want)
	}
	d := wire.Decoder{Data: data, At: recordHeadSize}
	r.decodeTail(&d, version)
	if d.Err != nil {
		return d.Err
	}
	return r.check()
}

func (r *Record) decodeTail(d *wire.Decoder, version byte) {
	known, last := d.At, byte(0) // known is where the fields end that this version knows
	for d.Err == nil && d.At < len(d.Data) {
		at := d.At
		tag := d.Data[at]
		d.At++
		value := d.Bytes("field")
		switch {
		case d.Err != nil:
		case tag <= last:
			d.Fail(at, "tag %d after tag %d", tag, last)
		case len(value) == 0:
			d.Fail(at, "field %d is empty", tag)
		case tag > tagLast && version == layoutVersion:
			d.Fail(at, "tag %d in layout version %d", tag, version)
		}
		if d.Err != nil {
			return
		}
		last = tag
		switch tag {
		case tagOperation:
			r.Operation = string(value)
		case tagCorrelation:
			r.Correlation = string(value)
		case tagError:
			r.Error = string(value)
		case tagResponse:
			a := wire.Decoder{Data: d.Data[:d.At], At: d.At - len(value)}
			r.Response = answerOf(&a)
			d.Err = a.Err
		case tagSealed:
			r.Sealed = slices.Clone(value)
		default:
			continue
		}
		known = d.At
	}
	if version > layoutVersion {
		r.unknown = string(d.Data[offVersion:offReadable+1]) + string(d.Data[known:])
	}
}

// size returns the length of the record's binary form, and that of the answer in it.
func (r *Record) size() (total, answer int) {
	total = recordHeadSize + wire.FieldSize(len(r.Operation)) + wire.FieldSize(len(r.Correlation)) + wire.FieldSize(len(r.Error)) +
		wire.FieldSize(len(r.Sealed))
	if r.unknown != "" {
		total += len(r.unknown) - 2 // the versions are in the header
	}
	if r.Response != nil {
		answer = r.Response.size()
		total += wire.FieldSize(answer)
	}
	return total, answer
}

// answerHeadSize is the size of the part before an answer that is stored by itself: layout version, lowest version that
// can read it, and the CRC-32C of the rest.
const answerHeadSize = 6

// AppendBinary appends the answer's binary form to b, for stores that keep answers apart from their records. It
// implements [encoding.BinaryAppender], and does not fail.
func (p *Response) AppendBinary(b []byte) ([]byte, error) {
	start := len(b)
	b = slices.Grow(b, answerHeadSize+p.size())
	b = append(b, layoutVersion, layoutReadable, 0, 0, 0, 0)
	b = p.append(b)
	binary.BigEndian.PutUint32(b[start+2:], crc32.Checksum(b[start+answerHeadSize:], castagnoli))
	return b, nil
}

// MarshalBinary returns the answer's binary form. It implements [encoding.BinaryMarshaler], and does not fail.
func (p *Response) MarshalBinary() ([]byte, error) { return p.AppendBinary(nil) }

// UnmarshalBinary sets the answer to the one whose binary form data is. It implements [encoding.BinaryUnmarshaler]: it
// keeps no part of data. If data is not the form of an answer, or if only a later version can read it, the answer stays
// as it was. Then the error wraps [ErrUnreadable] and says what is wrong, and where.
func (p *Response) UnmarshalBinary(data []byte) error {
	n, err := decodeAnswer(data)
	if err != nil {
		return fmt.Errorf("%w: answer: %w", ErrUnreadable, err)
	}
	*p = *n
	return nil
}

func decodeAnswer(data []byte) (*Response, error) {
	if len(data) < answerHeadSize {
		return nil, fmt.Errorf("%d bytes, want at least %d", len(data), answerHeadSize)
	}
	version, readable := data[0], data[1]
	if version == 0 || readable == 0 || readable > version || readable > layoutVersion {
		return nil, fmt.Errorf("layout version %d, readable from %d on, this is %d", version, readable, layoutVersion)
	}
	if got, want := crc32.Checksum(data[answerHeadSize:], castagnoli), binary.BigEndian.Uint32(data[2:]); got != want {
		return nil, fmt.Errorf("%d bytes have CRC %08x, want %08x", len(data)-answerHeadSize, got, want)
	}
	d := wire.Decoder{Data: data, At: answerHeadSize}
	p := answerOf(&d)
	if d.Err != nil {
		return nil, d.Err
	}
	return p, p.check()
}

func (p *Response) check() error {
	if p != nil && p.Status != 0 && (p.Status < 100 || p.Status > 999) {
		return fmt.Errorf("status is %d", p.Status)
	}
	return nil
}

func (p *Response) size() int {
	return 2 + wire.StringSize(len(p.Codec)) + wire.FieldsSize(p.Header) + wire.FieldsSize(p.Trailer) + len(p.Body)
}

func (p *Response) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(p.Status))
	b = wire.AppendString(b, p.Codec)
	b = wire.AppendFields(b, p.Header)
	b = wire.AppendFields(b, p.Trailer)
	return append(b, p.Body...)
}

// answerOf reads an answer, which reaches to the end of the data.
func answerOf(d *wire.Decoder) *Response {
	if len(d.Data)-d.At < 2 {
		d.Fail(d.At, "answer is too short")
		return nil
	}
	p := &Response{Status: int(binary.BigEndian.Uint16(d.Data[d.At:]))}
	d.At += 2
	p.Codec = string(d.Bytes("codec"))
	p.Header = d.Fields("header")
	p.Trailer = d.Fields("trailer")
	if d.Err == nil && d.At < len(d.Data) {
		p.Body = slices.Clone(d.Data[d.At:])
	}
	return p
}
