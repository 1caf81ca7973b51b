package pgstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/semelhq/semel/driver"
)

// An answer is stored as the end of the binary form of a record that has nothing else, so that it has that form's
// versions, its checks and its way to carry fields of later versions (R-41a, R-93):
//
//	at size
//	 0    1  layout version
//	 1    1  lowest layout version that can read it
//	 2    4  CRC-32C of the rest, big-endian
//	 6       the record's fields, of which the answer is one
const answerHead = 6

// bare is the header of such a record.
var bare = mustEncode(&driver.Record{State: driver.Done, Retention: 1})

func mustEncode(rec *driver.Record) []byte {
	b, err := rec.AppendBinary(nil)
	if err != nil {
		panic(err) // it is a valid one
	}
	return b
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crcFromEnd is where the header of the binary form has the CRC of the rest, from its end: what follows are the CRC and
// the fingerprint.
const crcFromEnd = 4 + 40

// encodeAnswer returns an answer as it is stored. No answer is nil.
func encodeAnswer(p *driver.Response) ([]byte, error) {
	if p == nil {
		return nil, nil
	}
	rec := driver.Record{State: driver.Done, Retention: 1, Response: p}
	full, err := rec.AppendBinary(nil)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	start := len(bare) - answerHead // the fields stay where they are
	out := full[start:]
	out[0], out[1] = full[0], full[1]
	binary.BigEndian.PutUint32(out[2:], crc32.Checksum(out[answerHead:], castagnoli))
	return out, nil
}

// decodeAnswer returns the answer that was encoded. It retains nothing of b.
func decodeAnswer(b []byte) (*driver.Response, error) {
	if len(b) <= answerHead {
		return nil, fmt.Errorf("the answer has %d bytes", len(b))
	}
	full := make([]byte, 0, len(bare)+len(b)-answerHead)
	full = append(append(full, bare...), b[answerHead:]...)
	full[0], full[1] = b[0], b[1]
	copy(full[len(bare)-crcFromEnd:], b[2:answerHead])
	var rec driver.Record
	if err := rec.UnmarshalBinary(full); err != nil {
		return nil, fmt.Errorf("the answer can't be read: %w", err)
	}
	return rec.Response, nil
}
