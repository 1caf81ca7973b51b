package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"unsafe"

	"github.com/semelhq/semel/driver"
)

// A record's frame is the string that its key holds. Scripts change its head in place and join parts; none of them has
// to compute a checksum. The positions are those of scripts/prelude.lua, counted from 0.
//
//	  0    1  frame version: the lowest version of this layout that can read the frame
//	  1  126  header of the record's binary form, of a record without a tail (package semel, codec.go)
//	127    1  1 if the answer is apart: in a second key, which ends with the retention and leaves a tombstone behind
//	128   24  lengths of the parts, 4 bytes each
//	152       the parts: operation, correlation, error, more, sealed request, answer
//
// A part that is not empty ends with the CRC-32C of what is before; an answer has its own. "More" is for later
// versions: this one keeps it as it is.
//
// The second key holds the fence, so that it is never taken for another run's, and the answer.
//
// Steps are a hash under the record's key, a colon, and when the operation was created (microseconds since the Unix
// epoch), so that they are never taken for another operation's. Values are those of stepValue, and names their fields.
// The key ends with the record's, or with the retention if a tombstone is left.
const (
	frameVersion = 1
	headStart    = 1
	headEnd      = 127
	offApart     = 127
	offLengths   = 128
	frameHead    = 152

	offState   = 3
	offFlags   = 4
	offWrote   = 5
	offFence   = 7
	offSettled = 55
	markSize   = 15 // of the mark that a forgotten record leaves: a head with state 0, up to the fence
)

const (
	partOperation = iota
	partCorrelation
	partError
	partMore
	partSealed
	partAnswer
	parts
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	// layoutVersion is the highest layout version of package semel's binary form that can be read.
	layoutVersion = func() byte {
		b, err := (&driver.Record{State: driver.Running, Retention: 1}).AppendBinary(nil)
		if err != nil {
			panic(err) // the record is a valid one
		}
		return b[0]
	}()
)

func appendPart[T string | []byte](b []byte, part T) []byte {
	if len(part) == 0 {
		return b
	}
	start := len(b)
	b = append(b, part...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// newFrame returns the frame of a first run of c, with fence and times zero, which the script sets.
func newFrame(c *driver.Claim) (string, error) {
	return encodeFrame(&driver.Record{
		State: driver.Running, OnLost: c.OnLost, Token: c.Token, Fingerprint: c.Fingerprint, Attempt: 1,
		Retention: c.Retention, Tombstone: c.Tombstone, Operation: c.Operation, Correlation: c.Correlation, Sealed: c.Sealed,
	})
}

// encodeFrame returns the frame of a record, whose answer is not apart.
func encodeFrame(rec *driver.Record) (string, error) {
	head := *rec
	head.Operation, head.Correlation, head.Error, head.Response, head.Sealed = "", "", "", nil, nil
	room := frameHead + len(rec.Operation) + len(rec.Correlation) + len(rec.Error) + len(rec.Sealed) + 16
	if rec.Response != nil {
		room += len(rec.Response.Body) + 256
	}
	b, err := head.AppendBinary(append(make([]byte, 0, room), frameVersion))
	if err != nil {
		return "", err
	}
	b = append(b, make([]byte, frameHead-len(b))...)
	from := frameHead
	end := func(part int) {
		binary.BigEndian.PutUint32(b[offLengths+4*part:], uint32(len(b)-from))
		from = len(b)
	}
	b = appendPart(b, rec.Operation)
	end(partOperation)
	b = appendPart(b, rec.Correlation)
	end(partCorrelation)
	b = appendPart(b, rec.Error)
	end(partError)
	b = appendPart(b, rec.Sealed)
	end(partSealed)
	if rec.Response != nil {
		if b, err = rec.Response.AppendBinary(b); err != nil {
			return "", err
		}
		end(partAnswer)
	}
	return unsafe.String(unsafe.SliceData(b), len(b)), nil //nolint:gosec // nothing changes b any more
}

// answerPart returns the part for an answer; none is empty.
func answerPart(p *driver.Response) (string, error) {
	if p == nil {
		return "", nil
	}
	b, err := p.AppendBinary(nil)
	return string(b), err
}

// bytesOf returns a view of a string that is not empty, which is only read.
func bytesOf(s string) []byte {
	return unsafe.Slice(unsafe.StringData(s), len(s)) //nolint:gosec // spares a copy of each answer
}

// readFrame returns the record of a frame, behind which an answer that is apart may stand. An empty frame is an absent
// record, a mark one with a fence. Errors wrap [driver.ErrUnreadable].
func readFrame(frame string) (driver.Record, error) {
	rec, err := readHead(frame)
	if err != nil || rec.State == driver.Absent {
		return rec, err
	}
	if err := readParts(&rec, frame); err != nil {
		return driver.Record{}, fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
	}
	return rec, nil
}

// readHead returns what the head of a frame holds.
func readHead(frame string) (driver.Record, error) {
	if frame == "" {
		return driver.Record{}, nil
	}
	if frame[0] != frameVersion {
		return driver.Record{}, fmt.Errorf("%w: frame version %d, this is %d", driver.ErrUnreadable, frame[0], frameVersion)
	}
	if len(frame) == markSize && driver.State(frame[offState]) == driver.Absent {
		return driver.Record{Fence: binary.BigEndian.Uint64(bytesOf(frame[offFence:]))}, nil
	}
	if len(frame) < frameHead {
		return driver.Record{}, fmt.Errorf("%w: frame of %d bytes, want at least %d", driver.ErrUnreadable, len(frame), frameHead)
	}
	var rec driver.Record
	err := rec.UnmarshalBinary(bytesOf(frame[headStart:headEnd]))
	return rec, err
}

func readParts(rec *driver.Record, frame string) error {
	apart := frame[offApart] != 0
	if frame[offApart] > 1 || apart && rec.State != driver.Done {
		return fmt.Errorf("apart is %d in a record that is %s", frame[offApart], rec.State)
	}
	at := frameHead
	for part := range parts {
		size := partSize(frame, part)
		if apart && part == partAnswer && at == len(frame) {
			return nil // its key has ended
		}
		if size > len(frame)-at {
			return fmt.Errorf("part %d of %d bytes at byte %d of %d", part, size, at, len(frame))
		}
		if size > 0 {
			if err := readPart(rec, part, frame[at:at+size]); err != nil {
				return fmt.Errorf("part %d of %d bytes: %w", part, size, err)
			}
		}
		at += size
	}
	if at != len(frame) {
		return fmt.Errorf("the parts end at byte %d of %d", at, len(frame))
	}
	return nil
}

// partSize returns how long a part is, from a frame's head.
func partSize(head string, part int) int {
	return int(binary.BigEndian.Uint32(bytesOf(head[offLengths+4*part : offLengths+4*part+4])))
}

func readPart(rec *driver.Record, part int, text string) error {
	switch part {
	case partMore:
		return nil
	case partAnswer:
		if rec.State != driver.Done {
			return fmt.Errorf("%s with an answer", rec.State)
		}
		rec.Response = new(driver.Response)
		return rec.Response.UnmarshalBinary(bytesOf(text))
	}
	sum := len(text) - 4
	if sum <= 0 {
		return errors.New("too short")
	}
	got, want := crc32.Checksum(bytesOf(text[:sum]), castagnoli), binary.BigEndian.Uint32(bytesOf(text[sum:]))
	if got != want {
		return fmt.Errorf("CRC %08x, want %08x", got, want)
	}
	switch text = strings.Clone(text[:sum]); part { // so that the record does not hold on to the answer's bytes
	case partOperation:
		rec.Operation = text
	case partCorrelation:
		rec.Correlation = text
	case partError:
		rec.Error = text
	case partSealed:
		rec.Sealed = []byte(text)
	}
	return nil
}
