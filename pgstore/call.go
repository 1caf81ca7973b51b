package pgstore

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// A call is a statement with its arguments. It is sent with their types and in the binary format; alone, or in a batch
// with others. As an unnamed statement it works on any connection, also behind a pooler.
type call struct {
	sql    string
	often  bool // it is prepared where prepared statements stay: see [Store.prepare]
	values [][]byte
	oids   []uint32
	space  []byte // what is left of the memory for short values
}

// newCall makes a call that is sent often, of so many arguments.
func newCall(sql string, arguments int) *call {
	return &call{sql: sql, often: true, values: make([][]byte, 0, arguments), oids: make([]uint32, 0, arguments)}
}

// short returns room for n bytes, at the end of an allocation for many.
func (c *call) short(n int) []byte {
	if c.space == nil || cap(c.space)-len(c.space) < n {
		c.space = make([]byte, 0, max(n, 96))
	}
	at := len(c.space)
	c.space = c.space[:at+n]
	return c.space[at : at : at+n]
}

var binaryFormat = []int16{1}

func (c *call) add(oid uint32, value []byte) *call {
	c.values = append(c.values, value)
	c.oids = append(c.oids, oid)
	return c
}

// bytes adds a bytea; nil is NULL.
func (c *call) bytes(b []byte) *call { return c.add(pgtype.ByteaOID, b) }

// orNull returns b, or nil if it is empty.
func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// text adds a string as a bytea.
func (c *call) text(s string) *call { return c.add(pgtype.ByteaOID, append(c.short(len(s)), s...)) }

// string adds a string as a text.
func (c *call) string(s string) *call { return c.add(pgtype.TextOID, append([]byte{}, s...)) }

func (c *call) int8(n int64) *call {
	return c.add(pgtype.Int8OID, binary.BigEndian.AppendUint64(c.short(8), uint64(n)))
}

func (c *call) int4(n int32) *call {
	return c.add(pgtype.Int4OID, binary.BigEndian.AppendUint32(c.short(4), uint32(n)))
}

func (c *call) int2(n int16) *call {
	return c.add(pgtype.Int2OID, binary.BigEndian.AppendUint16(c.short(2), uint16(n)))
}

func (c *call) bool(b bool) *call {
	if b {
		return c.add(pgtype.BoolOID, []byte{1})
	}
	return c.add(pgtype.BoolOID, []byte{0})
}

// texts adds an array of text.
func (c *call) texts(all []string) *call {
	values := make([][]byte, len(all))
	for i, s := range all {
		values[i] = []byte(s)
	}
	return c.array(pgtype.TextArrayOID, pgtype.TextOID, values)
}

// int8s adds an array of bigint.
func (c *call) int8s(all []int64) *call {
	values := make([][]byte, len(all))
	for i, n := range all {
		values[i] = binary.BigEndian.AppendUint64(nil, uint64(n))
	}
	return c.array(pgtype.Int8ArrayOID, pgtype.Int8OID, values)
}

// array adds an array, in which nil is NULL.
func (c *call) array(oid, element uint32, values [][]byte) *call {
	size, nulls, dimensions := 20, uint32(0), uint32(1)
	for _, v := range values {
		size += 4 + len(v)
		if v == nil {
			nulls = 1
		}
	}
	if len(values) == 0 {
		dimensions = 0
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, size), dimensions)
	b = binary.BigEndian.AppendUint32(b, nulls)
	b = binary.BigEndian.AppendUint32(b, element)
	if dimensions > 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(len(values)))
		b = binary.BigEndian.AppendUint32(b, 1) // the first index
	}
	for _, v := range values {
		if v == nil {
			b = binary.BigEndian.AppendUint32(b, math.MaxUint32)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	return c.add(oid, b)
}

// run executes the call in a round trip of its own, and calls read with each row, whose values are in the binary format
// and valid until it returns.
func (c *call) run(ctx context.Context, conn *pgconn.PgConn, read func(row [][]byte) error) error {
	return readRows(conn.ExecParams(ctx, c.sql, c.values, c.oids, binaryFormat, binaryFormat), read)
}

// size is about how many bytes are sent.
func (c *call) size() (n int) {
	for _, v := range c.values {
		n += len(v)
	}
	return n
}

// queue adds the call to a batch, in whose results it has one reader.
func (c *call) queue(b *pgconn.Batch) {
	b.ExecParams(c.sql, c.values, c.oids, binaryFormat, binaryFormat)
}

// readRows reads a result to its end.
func readRows(r *pgconn.ResultReader, read func(row [][]byte) error) error {
	var failed error
	for r.NextRow() {
		if failed == nil && read != nil {
			failed = read(r.Values())
		}
	}
	if _, err := r.Close(); err != nil {
		return err
	}
	return failed
}

func int8Of(b []byte) int64 {
	if len(b) != 8 {
		return 0 // NULL
	}
	return int64(binary.BigEndian.Uint64(b))
}

func int4Of(b []byte) int32 {
	if len(b) != 4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

func int2Of(b []byte) int16 {
	if len(b) != 2 {
		return 0
	}
	return int16(binary.BigEndian.Uint16(b))
}

func boolOf(b []byte) bool { return len(b) == 1 && b[0] != 0 }
