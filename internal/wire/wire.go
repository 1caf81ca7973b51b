// Package wire writes and reads the parts of which binary forms are made: lengths as unsigned varints in their shortest
// form, texts, and header fields.
package wire

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
)

// AppendFields appends header or trailer fields, in the order of their names. A name without values is kept: it
// suppresses a field that net/http would add by itself.
func AppendFields(b []byte, h http.Header) []byte {
	if len(h) == 0 {
		return append(b, 0)
	}
	var few [24]string // keeps the names of an ordinary answer off the heap
	names := few[:0]
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = appendNamed(b, name, h[name])
	}
	return b
}

// AppendAnyOrder is AppendFields for a form that is never compared, and so needs no order.
func AppendAnyOrder(b []byte, h http.Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(h)))
	for name, values := range h {
		b = appendNamed(b, name, values)
	}
	return b
}

func appendNamed(b []byte, name string, values []string) []byte {
	b = AppendString(b, name)
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, value := range values {
		b = AppendString(b, value)
	}
	return b
}

// FieldsSize returns how many bytes AppendFields appends.
func FieldsSize(h http.Header) int {
	n := uvarintSize(len(h))
	for name, values := range h {
		n += StringSize(len(name)) + uvarintSize(len(values))
		for _, value := range values {
			n += StringSize(len(value))
		}
	}
	return n
}

// AppendField appends a tag, a length and a value; nothing if the value is empty.
func AppendField[T string | []byte](b []byte, tag byte, value T) []byte {
	if len(value) == 0 {
		return b
	}
	b = append(b, tag)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// AppendString appends a length and a text.
func AppendString[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// FieldSize returns how many bytes AppendField appends for a value of n bytes.
func FieldSize(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + StringSize(n)
}

// StringSize returns how many bytes AppendString appends for a text of n bytes.
func StringSize(n int) int { return uvarintSize(n) + n }

func uvarintSize(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

// A Decoder reads a record's tail. After the first error it stands still and returns zero values.
type Decoder struct {
	Data []byte
	At   int
	Err  error
}

// Fail notes what is wrong, and where.
func (d *Decoder) Fail(at int, format string, args ...any) {
	d.Err = fmt.Errorf("%s at byte %d", fmt.Sprintf(format, args...), at)
}

// number reads a count or length of things that take at least one byte each, so that it can't exceed what is left.
func (d *Decoder) number(what string) int {
	if d.Err != nil {
		return 0
	}
	n, size := binary.Uvarint(d.Data[d.At:])
	switch {
	case size <= 0:
		d.Fail(d.At, "length of %s is malformed", what)
		return 0
	case size > 1 && d.Data[d.At+size-1] == 0:
		d.Fail(d.At, "length of %s is not in its shortest form", what)
		return 0
	case n > uint64(len(d.Data)-d.At-size):
		d.Fail(d.At, "length of %s is %d, but %d bytes are left", what, n, len(d.Data)-d.At-size)
		return 0
	}
	d.At += size
	return int(n)
}

// Bytes reads a length and so many bytes. The result is part of the data.
func (d *Decoder) Bytes(what string) []byte {
	n := d.number(what)
	d.At += n
	return d.Data[d.At-n : d.At]
}

// Fields reads header or trailer fields; none are nil. They share no memory with the data.
func (d *Decoder) Fields(what string) http.Header {
	from := d.At
	count := d.number(what)
	if d.Err != nil || count == 0 {
		return nil
	}
	d.skipFields(count)
	if d.Err != nil {
		return nil
	}
	text := Text(d.Data[from:d.At])
	return text.Fields(nil)
}

// skipFields checks so many fields without taking memory for them.
func (d *Decoder) skipFields(count int) {
	var last []byte
	for i := range count {
		at := d.At
		name := d.Bytes("name")
		if d.Err == nil && i > 0 && string(name) <= string(last) {
			d.Fail(at, "names are not in order")
		}
		last = name
		for range d.number("values") {
			d.Bytes("value")
		}
		if d.Err != nil {
			return
		}
	}
}

// A Text is read from its beginning, without checks: a [Decoder] has checked it, or it has not left the process since it
// was written. What is read of it shares its memory.
type Text string

// Number reads an unsigned varint.
func (t *Text) Number() (n int) {
	for i := range len(*t) {
		c := (*t)[i]
		n |= int(c&0x7f) << (7 * i)
		if c < 0x80 {
			*t = (*t)[i+1:]
			return n
		}
	}
	return n
}

// Next reads a length and so many bytes.
func (t *Text) Next() string {
	n := t.Number()
	s := (*t)[:n]
	*t = (*t)[n:]
	return string(s)
}

// Fields reads header or trailer fields; none are nil. The values of many names share one array, of which each name has
// its own, capped part: that of room, as far as it reaches.
func (t *Text) Fields(room []string) http.Header {
	count := t.Number()
	if count == 0 {
		return nil
	}
	h := make(http.Header, count)
	values := room[:0]
	for range count {
		name := t.Next()
		n := t.Number()
		if n == 0 {
			h[name] = nil
			continue
		}
		if cap(values)-len(values) < n {
			values = make([]string, 0, max(n, count))
		}
		first := len(values)
		for range n {
			values = append(values, t.Next())
		}
		h[name] = values[first:len(values):len(values)]
	}
	return h
}
