package fleet

import (
	"testing"
	"time"

	"github.com/semelhq/semel/internal/proof"
)

const mebibyte = 1 << 20

// The floods of make flood, shorter. PostgreSQL and Redis are both in tiered. In the short form a flood comes on one
// kind of storage, by chance.
func TestR60_Field01_AFloodOfClaimsThatAreGivenUpTouchesNobodyElse(t *testing.T) {
	for _, kind := range proof.Some(1, "sqlite", "tiered") {
		t.Run(kind, func(t *testing.T) {
			floods(t, 64*mebibyte, Flood{
				Attack: "hangups", Store: kind, Hangups: 600, Rate: 1500, FailOpen: kind == "tiered",
			})
		})
	}
}

func TestAttack05_R60_AFloodOfKeysTouchesNobodyElse(t *testing.T) {
	floods(t, 64*mebibyte, Flood{Attack: "keys", Store: "sqlite", Keys: 1500})
}

// 200 halves of a body are above 128 MiB where nothing bounds them; a tenth of 256 MiB is one principal's.
func TestAttack05_R60_SlowBodiesOfOneTouchNobodyElse(t *testing.T) {
	floods(t, 128*mebibyte, Flood{Attack: "bodies", Store: "sqlite", Peers: 200, Duration: 2 * time.Second})
}

// 60 readers of 8 MiB each take 480 MiB, and their copies, where nothing bounds them.
func TestAttack05_R60_ReadersOfOneThatDontReadTouchNobodyElse(t *testing.T) {
	floods(t, 256*mebibyte, Flood{Attack: "readers", Store: "sqlite", Peers: 60 / raceFactor, Duration: 2 * time.Second})
}

func TestAttack05_R60_AllFloodsOfOneAtOnceTouchNobodyElse(t *testing.T) {
	for _, kind := range proof.Some(1, "sqlite", "postgres") {
		t.Run(kind, func(t *testing.T) {
			floods(t, 256*mebibyte, Flood{
				Attack: "all", Store: kind, Hangups: 600 / raceFactor, Keys: 600 / raceFactor, Peers: 60 / raceFactor, Rate: 300 / raceFactor, Duration: 2 * time.Second,
			})
		})
	}
}

// floods makes a flood. The gateway's process must stay within so many bytes, where the system tells. What the attacker
// gets depends on how busy the machine is, and is not judged, but that each request or connection came to an end.
func floods(t *testing.T, memory int64, f Flood) {
	t.Helper()
	var r *FloodReport
	err := proof.Steady(func() (err error) {
		f.Alone, f.Dir = 200*time.Millisecond, t.TempDir()
		if r, err = f.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.Err()
	})
	if err != nil {
		t.Errorf("%v: %+v", err, *r)
	}
	ended := 0
	for _, n := range r.Outcomes {
		ended += n
	}
	if want := max(f.Hangups, f.Keys, f.Peers); ended < want {
		t.Errorf("%d outcomes, want %d: %+v", ended, want, *r)
	}
	if r.MemoryPeak > memory*raceFactor {
		t.Errorf("%d MiB of memory, want at most %d: %+v", r.MemoryPeak/mebibyte, memory*raceFactor/mebibyte, *r)
	}
}

func TestWhatAFloodsReportSays(t *testing.T) {
	some := Latency{Requests: 3}
	good := FloodReport{Attack: "hangups", Alone: some, Served: some, During: some, Outcomes: map[string]int{"hangups: hung up": 99, "hangups: not connected": 1}}
	if err := good.Err(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for want, bad := range map[string]FloodReport{
		"2 requests of another principal were refused: 503 X": {Alone: some, During: some, Refused: map[string]int{"503 X": 2}},
		"1 requests ran unprotected":                          {Alone: some, During: some, Bypassed: 1},
		"1 effects were duplicates":                           {Alone: some, During: some, Duplicates: 1},
		"the other principal has asked nothing":               {Alone: some},
		"2 of 100 sockets could not be opened":                {Alone: some, During: some, Outcomes: map[string]int{"a: 201": 98, "b: not connected": 2}},
	} {
		if err := bad.Err(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
