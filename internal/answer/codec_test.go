package answer

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// What is decoded takes memory of its size. The size that is stored with it is not believed.
func TestADecodedBodyTakesMemoryOfItsSize(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("abcdefgh"), 64<<10)
	packed, err := gzipCodec{}.Encode(body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := gzipCodec{}.Decode(packed, int64(len(body)))
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("decoded to %d bytes, error %v", len(got), err)
	}
	if n := cap(got); n > len(body)+4096 {
		t.Errorf("%d bytes are kept for %d", n, len(body))
	}
	if _, err := (gzipCodec{}).Decode(packed, int64(len(body))-1); err == nil {
		t.Error("a body above the limit was decoded")
	}
	for _, length := range []uint32{0, 1, 1<<32 - 1} {
		lies := bytes.Clone(packed)
		binary.LittleEndian.PutUint32(lies[len(lies)-4:], length)
		if _, err := (gzipCodec{}).Decode(lies, 1<<40); err == nil {
			t.Errorf("a body that says that it has %d bytes was decoded", length)
		}
	}
}
