package slab

// A block is a part of a text. All blocks are of one size, so that whatever is freed fits whatever comes, and nothing is
// lost between texts of different lengths.
type block struct {
	next Ref
	data [60]byte
}

const (
	blockData = 60
	blockSize = 64
)

// Texts is a slab of texts. The zero value is empty. It is not safe for concurrent changes.
type Texts struct {
	blocks Of[block]
}

// Size returns how much memory a text of n bytes takes.
func Size(n int) int64 { return int64((n+blockData-1)/blockData) * blockSize }

// Set keeps a copy of text in place of the one at first, and returns where it is. The text of no bytes is at 0.
func (t *Texts) Set(first Ref, text []byte) Ref {
	at := &first // blocks that are there serve again; a block does not move
	for len(text) > 0 {
		if *at == 0 {
			*at = t.blocks.New()
		}
		b := t.blocks.At(*at)
		n := copy(b.data[:], text)
		clear(b.data[n:])
		text, at = text[n:], &b.next
	}
	t.Free(*at)
	*at = 0
	return first
}

// Append appends the first size bytes of the text at first to b.
func (t *Texts) Append(b []byte, first Ref, size int) []byte {
	for ; size > blockData; size -= blockData {
		part := t.blocks.At(first)
		b = append(b, part.data[:]...)
		first = part.next
	}
	if size > 0 {
		b = append(b, t.blocks.At(first).data[:size]...)
	}
	return b
}

// Free takes the text at first back, and clears it.
func (t *Texts) Free(first Ref) {
	for first != 0 {
		next := t.blocks.At(first).next
		t.blocks.Free(first)
		first = next
	}
}
