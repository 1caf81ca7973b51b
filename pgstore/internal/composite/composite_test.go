package composite

import (
	"bytes"
	"testing"
)

func TestFieldsOfAValue(t *testing.T) {
	t.Parallel()
	got, err := Fields([]byte{0, 0, 0, 3, 0, 0, 0, 17, 0, 0, 0, 1, 'x', 0, 0, 0, 17, 255, 255, 255, 255, 0, 0, 0, 17, 0, 0, 0, 0})
	if err != nil || len(got) != 3 || string(got[0]) != "x" || got[1] != nil || got[2] == nil || len(got[2]) != 0 {
		t.Errorf("%q, %v; want x, NULL and an empty one", got, err)
	}
}

func FuzzFields(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 17, 0, 0, 0, 1, 'x', 0, 0, 0, 17, 255, 255, 255, 255})
	f.Add([]byte{127, 255, 255, 255, 0, 0, 0, 17, 127, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := Fields(b)
		if err != nil {
			return
		}
		size := 4
		for _, v := range fields {
			size += 8 + len(v)
		}
		if size > len(b) || len(bytes.Join(fields, nil)) > len(b) {
			t.Errorf("%d bytes are read as %q", len(b), fields)
		}
	})
}
