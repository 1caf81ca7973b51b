package verify

import (
	"math/rand/v2"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// An ending is how one direction of a connection through a proxy ends. It is always the last toxic there. Those that
// come with Toxiproxy know nothing of a TLS handshake before a request, close a connection that they hold up when the
// server closes it, and leave goroutines behind that wait for ever to hand on what nobody takes.
type ending struct {
	Skip     int64 `json:"skip"`     // bytes that pass before it, whatever Pass says
	Pass     pass  `json:"pass"`     // what passes of the piece after them, and of those that follow
	Within   int64 `json:"within"`   // after that piece the connection ends at some time within so many ms, rather early than late
	Patience int64 `json:"patience"` // a piece that nobody takes for so many ms ends the connection
}

type pass string

const (
	passEver pass = ""     // all, and the connection ends as its ends want
	passAll  pass = "all"  // all, until the connection ends
	passPart pass = "part" // a part of the piece, nothing of those that follow
	passNone pass = "none" // nothing
)

// endingType is the name by which Toxiproxy knows an ending.
const endingType = "semel_ending"

func init() { toxics.Register(endingType, new(ending)) }

// Pipe implements [toxics.Toxic] for one connection. Nothing interrupts it: the toxics of a proxy stay as they are.
func (e *ending) Pipe(stub *toxics.ToxicStub) {
	defer func() {
		stub.Close()
		for range stub.Input { // so that whoever writes comes to their end
		}
	}()
	skip := e.Skip
	for piece := range stub.Input {
		size := int64(len(piece.Data))
		if e.Pass != passEver && size > skip {
			e.end(stub, piece, skip)
			return
		}
		skip -= size
		if !e.send(stub, piece) {
			return
		}
	}
}

// end handles the piece after which the connection is to end, and waits until then. So many bytes of the piece pass in
// any case.
func (e *ending) end(stub *toxics.ToxicStub, piece *stream.StreamChunk, skip int64) {
	switch e.Pass {
	case passPart:
		skip += rand.Int64N(int64(len(piece.Data)) - skip)
	case passAll:
		skip = int64(len(piece.Data))
	}
	piece.Data = piece.Data[:skip]
	if skip > 0 && !e.send(stub, piece) {
		return
	}
	if e.Within == 0 {
		return
	}
	soon := 1 + rand.N(time.Duration(e.Within)*time.Millisecond)
	over := time.NewTimer(rand.N(soon))
	defer over.Stop()
	input := stub.Input
	for {
		select {
		case <-over.C:
			return
		case piece, open := <-input:
			switch {
			case !open: // the end is held up too
				input = nil
			case e.Pass == passAll && !e.send(stub, piece):
				return
			}
		}
	}
}

// send hands a piece on. It returns false if nobody takes it.
func (e *ending) send(stub *toxics.ToxicStub, piece *stream.StreamChunk) bool {
	late := time.NewTimer(time.Duration(e.Patience) * time.Millisecond)
	defer late.Stop()
	select {
	case stub.Output <- piece:
		return true
	case <-late.C:
		return false
	}
}
