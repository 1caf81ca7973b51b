// Package composite reads composite values in PostgreSQL's binary format: a number of fields, and for each its type, its
// length, -1 for NULL, and its bytes. A function's row costs the server less as one value than as columns.
package composite

import (
	"encoding/binary"
	"fmt"
)

// most is how many fields the values have that the store reads.
const most = 28

// Fields returns the fields of a value; nil for NULL. They share its memory.
func Fields(b []byte) ([][]byte, error) {
	fields := make([][]byte, 0, most)
	if len(b) < 4 {
		return nil, fmt.Errorf("a row of %d bytes", len(b))
	}
	n := int32(binary.BigEndian.Uint32(b))
	for b = b[4:]; n > 0; n-- {
		if len(b) < 8 {
			return nil, fmt.Errorf("the row ends where field %d should begin", len(fields))
		}
		size := int(int32(binary.BigEndian.Uint32(b[4:])))
		if b = b[8:]; size < 0 {
			fields = append(fields, nil)
			continue
		}
		if len(b) < size {
			return nil, fmt.Errorf("field %d has %d bytes, of which %d are there", len(fields), size, len(b))
		}
		fields = append(fields, b[:size:size])
		b = b[size:]
	}
	return fields, nil
}
