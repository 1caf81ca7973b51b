package redisstore

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/semelhq/semel/driver"
)

// A process remembers what it has seen done, as far as there is room, and takes no other operation for done.
func TestFinishedOperationsAreRemembered(t *testing.T) {
	t.Parallel()
	var f finished
	dice := rand.New(rand.NewPCG(1, 2))
	ids := make([]driver.ID, len(f.sets)*len(f.sets[0])/4)
	for i := range ids {
		for at := 0; at < len(ids[i]); at += 8 {
			binary.LittleEndian.PutUint64(ids[i][at:], dice.Uint64())
		}
		if f.has(&ids[i]) {
			t.Fatal("an operation is remembered that was not seen")
		}
		f.note(&ids[i], true)
		f.note(&ids[i], true)
		if !f.has(&ids[i]) {
			t.Fatal("an operation that was just seen is forgotten")
		}
	}
	kept := 0
	for i := range ids {
		if f.has(&ids[i]) {
			kept++
		}
	}
	if kept < len(ids)*98/100 {
		t.Errorf("of as many operations as a quarter of the places %d of %d are remembered", kept, len(ids))
	}
	for i := range ids {
		if f.note(&ids[i], false); f.has(&ids[i]) {
			t.Fatal("an operation that is not done is remembered")
		}
	}
}
