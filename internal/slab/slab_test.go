package slab

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"
)

// Whatever comes and goes, each text stays what it is, and the memory of those that went serves again.
func TestTextsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var texts Texts
	type text struct {
		at   Ref
		want []byte
	}
	kept := make([]text, 400)
	var most, now int64
	for turn := range 20_000 {
		k := &kept[r.IntN(len(kept))]
		now -= Size(len(k.want))
		if r.IntN(5) == 0 {
			texts.Free(k.at)
			*k = text{}
			continue
		}
		k.want = make([]byte, r.IntN(5*blockData))
		for i := range k.want {
			k.want[i] = byte(1 + r.IntN(255))
		}
		k.at = texts.Set(k.at, k.want)
		now += Size(len(k.want))
		most = max(most, now)
		if turn%100 > 0 {
			continue
		}
		for i, k := range kept {
			if got := texts.Append([]byte("before"), k.at, len(k.want)); !bytes.Equal(got[6:], k.want) || (k.at == 0) != (len(k.want) == 0) {
				t.Fatalf("text %d is %q at %d, want %q", i, got[6:], k.at, k.want)
			}
		}
	}
	if got := int64(len(texts.blocks.pages)); got > (most/blockSize+pageLen-1)/pageLen {
		t.Errorf("there are %d pages of blocks, and never more than %d blocks were needed", got, most/blockSize)
	}
	for _, k := range kept {
		texts.Free(k.at)
	}
	left := 0
	for _, p := range texts.blocks.pages {
		if p.values == nil {
			continue
		}
		left++
		if *p.values != [pageLen]block{} {
			t.Error("a text that was freed is still in memory")
		}
	}
	if left > 1 {
		t.Errorf("%d pages of nothing are kept", left)
	}
}

// Nothing of a text stays in memory when a shorter one takes its place.
func TestATextLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, blockData, blockData + 1, 3 * blockData} {
		var texts Texts
		at := texts.Set(0, bytes.Repeat([]byte("secret"), 50))
		at = texts.Set(at, bytes.Repeat([]byte("-"), size))
		if got := texts.Append(nil, at, size); !bytes.Equal(got, bytes.Repeat([]byte("-"), size)) {
			t.Errorf("the text of %d bytes is %q", size, got)
		}
		for _, p := range texts.blocks.pages {
			for _, b := range p.values {
				if bytes.ContainsAny(b.data[:], "secret") {
					t.Fatalf("a text of %d bytes has left %q", size, b.data)
				}
			}
		}
	}
}

func TestSizeIsWhatABlockTakes(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(block{}); size != blockSize || len(block{}.data) != blockData {
		t.Fatalf("a block of %d bytes takes %d", len(block{}.data), size)
	}
	for n, want := range map[int]int64{0: 0, 1: 64, 60: 64, 61: 128, 600: 640} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) is %d, want %d", n, got, want)
		}
	}
}

// A pointer to a value stays right while the slab grows, and a value that was freed comes back as zero.
func TestValuesStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	var s Of[[3]uint64]
	first := s.New()
	at := s.At(first)
	at[1] = 7
	for range 10 * pageLen {
		s.New()
	}
	if s.At(first) != at || first == 0 {
		t.Fatalf("value %d has moved", first)
	}
	s.Free(first)
	if again := s.New(); again != first || *s.At(again) != [3]uint64{} {
		t.Errorf("value %d is %v, want the zero value in the place of %d", again, *s.At(again), first)
	}
}

// A slab costs the collector one object for a page of values, not one for each.
func TestASlabIsFewObjects(t *testing.T) {
	const n = 100_000
	objects := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapObjects
	}
	var texts Texts
	before := objects()
	for i := range n {
		texts.Set(0, make([]byte, 1+i%blockData))
	}
	if added := int64(objects() - before); added > n/10 {
		t.Errorf("%d texts are %d objects", n, added)
	}
	runtime.KeepAlive(&texts)
}
