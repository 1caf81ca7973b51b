package faults

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A gate decides about each piece that passes a proxy. The toxics that come with Toxiproxy are not enough: one that is
// put in the way of open connections may wait for ever for one that is just ending, and one that is taken away closes
// them.
type gate struct {
	id int64

	mu    sync.Mutex
	mode  mode
	reset chan struct{} // closed to reset the connections that are open
}

// A mode is what a gate does.
type mode struct {
	dropRequests, dropReplies bool
	delay                     time.Duration // of replies
}

// Toxiproxy makes its toxics itself, from a type's name and JSON: a gate is found by its id.
var (
	gates  sync.Map // of *gate by id
	gateID atomic.Int64
)

func newGate() *gate {
	g := &gate{id: gateID.Add(1), reset: make(chan struct{})}
	gates.Store(g.id, g)
	return g
}

func (g *gate) remove() { gates.Delete(g.id) }

// change changes what the gate does from now on.
func (g *gate) change(to func(*mode)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	to(&g.mode)
}

func (g *gate) resetAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resetOpen()
}

// resetOpen is called with g.mu held.
func (g *gate) resetOpen() {
	close(g.reset)
	g.reset = make(chan struct{})
}

// restore ends what the gate does. If bytes may have vanished, no connection from which they may passes anything more.
func (g *gate) restore() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mode.dropRequests || g.mode.dropReplies {
		g.resetOpen()
	}
	g.mode = mode{}
}

func (g *gate) now() (mode, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mode, g.reset
}

// gateType is the name by which Toxiproxy knows gateToxic.
const gateType = "semel_gate"

func init() { toxics.Register(gateType, new(gateToxic)) }

// A gateToxic is one direction of a gate.
type gateToxic struct {
	ID      int64 `json:"id"`
	Request bool  `json:"request"` // else what the server says
}

// GetBufferSize implements [toxics.BufferedToxic]: one piece's delay does not add to the next one's.
func (*gateToxic) GetBufferSize() int { return 1024 }

// Pipe implements [toxics.Toxic] for one connection.
func (t *gateToxic) Pipe(stub *toxics.ToxicStub) {
	found, ok := gates.Load(t.ID)
	if !ok { // the proxy is closed
		stub.Close()
		return
	}
	g := found.(*gate)
	_, reset := g.now()
	for {
		select {
		case <-stub.Interrupt:
			return
		case piece := <-stub.Input:
			switch {
			case piece == nil: // the end
				stub.Close()
				return
			case t.pass(g, stub, piece, reset):
				continue
			}
		case <-reset:
		}
		stub.Close()
		for range stub.Input { // so that whoever writes comes to his end
		}
		return
	}
}

// pass passes a piece on, or lets it vanish. It returns false if the connection is to be reset.
func (t *gateToxic) pass(g *gate, stub *toxics.ToxicStub, piece *stream.StreamChunk, reset <-chan struct{}) bool {
	m, now := g.now()
	if now != reset {
		return false
	}
	if t.Request && m.dropRequests || !t.Request && m.dropReplies {
		return true
	}
	if m.delay > 0 && !t.Request {
		late := time.NewTimer(time.Until(piece.Timestamp.Add(m.delay)))
		defer late.Stop()
		select {
		case <-late.C:
		case <-reset:
			return false
		}
	}
	select {
	case stub.Output <- piece:
		return true
	case <-reset:
		return false
	}
}
