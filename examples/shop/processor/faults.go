package processor

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Faults say how calls that may move money are to fail. The zero value but for Dedup is a processor in good health.
type Faults struct {
	DelayMS    int64  `json:"delay_ms"`    // each call takes so long before its effect
	FailBefore Rate   `json:"fail_before"` // 500, without an effect
	FailAfter  Rate   `json:"fail_after"`  // 500, after the effect
	LoseAnswer Rate   `json:"lose_answer"` // the connection is closed after the effect
	Decline    Rate   `json:"decline"`     // of authorizations and charges
	Seed       uint64 `json:"seed"`        // of the choice which calls fail
	Dedup      bool   `json:"dedup"`       // repetitions are recognised by their key; true if it is left out
}

// Rate says which calls a fault happens to: a share of them chosen at random, and the next ones for certain. In JSON it
// is a number from 0 to 1, which is the share, or an object such as {"next": 2}.
type Rate struct {
	Share float64
	Next  int
}

// MarshalJSON implements json.Marshaler.
func (r Rate) MarshalJSON() ([]byte, error) {
	if r.Next == 0 {
		return json.Marshal(r.Share)
	}
	return json.Marshal(map[string]any{"share": r.Share, "next": r.Next})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rate) UnmarshalJSON(data []byte) error {
	*r = Rate{}
	if err := json.Unmarshal(data, &r.Share); err != nil {
		var o struct {
			Share float64 `json:"share"`
			Next  int     `json:"next"`
		}
		if err := json.Unmarshal(data, &o); err != nil {
			return errors.New(`want a share from 0 to 1, or {"next": N}`)
		}
		r.Share, r.Next = o.Share, o.Next
	}
	if r.Share < 0 || r.Share > 1 || r.Next < 0 {
		return errors.New(`want a share from 0 to 1, or {"next": N} with N from 0`)
	}
	return nil
}

// faults choose for each call how it fails.
type faults struct {
	mu     sync.Mutex
	f      Faults
	random *rand.Rand
}

// fate is how one call fails.
type fate struct {
	delay                                      time.Duration
	failBefore, failAfter, loseAnswer, decline bool
}

func (x *faults) set(f Faults) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.f, x.random = f, rand.New(rand.NewPCG(f.Seed, 0))
}

func (x *faults) get() Faults {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.f
}

func (x *faults) next() fate {
	x.mu.Lock()
	defer x.mu.Unlock()
	return fate{
		delay:      time.Duration(x.f.DelayMS) * time.Millisecond,
		decline:    x.happens(&x.f.Decline),
		failBefore: x.happens(&x.f.FailBefore),
		failAfter:  x.happens(&x.f.FailAfter),
		loseAnswer: x.happens(&x.f.LoseAnswer),
	}
}

// happens draws a number for each fault in each call, so that one fault's share does not move the others.
func (x *faults) happens(r *Rate) bool {
	drawn := x.random.Float64() < r.Share
	if r.Next > 0 {
		r.Next--
		return true
	}
	return drawn
}

func (p *Processor) getFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, p.faults.get())
}

// putFaults replaces all faults. What is left out is off; so an empty object heals the processor.
func (p *Processor) putFaults(w http.ResponseWriter, r *http.Request) {
	f := Faults{Dedup: true}
	if _, bad := readJSON(w, r, &f); bad != nil {
		bad.write(w)
		return
	}
	if f.DelayMS < 0 || f.DelayMS > 60_000 {
		invalid("delay_ms", "%d is not from 0 to 60000", f.DelayMS).write(w)
		return
	}
	p.faults.set(f)
	writeJSON(w, http.StatusOK, p.faults.get())
}
