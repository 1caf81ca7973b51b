package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/semelhq/semel/driver"
)

// partVariable holds the part that a process is to play, in JSON.
const partVariable = "SEMEL_CHAOS_PART"

// A part is what a process of the cast is told.
type part struct {
	Role     role          `json:"role"`
	Front    string        `json:"front"` // name of a front
	Mode     Mode          `json:"mode"`
	Storage  Storage       `json:"storage"`
	Listen   string        `json:"listen"`   // host:port; port 0 takes a free one
	Upstream string        `json:"upstream"` // of a gateway
	Store    string        `json:"store"`    // address of a front's store
	Shards   []string      `json:"shards"`   // addresses of the other shards of the store; nil for none
	Moves    bool          `json:"moves"`    // operations begin in their new shards
	Cache    string        `json:"cache"`    // address of the cache before it; "" for none
	Skew     time.Duration `json:"skew"`     // how far its clock is from the others'
	Ledger   string        `json:"ledger"`   // file of effects: of a service, a ledger; of a library, an SQLite database
	Lease    time.Duration `json:"lease"`
	Flaw     flaw          `json:"flaw"`
}

// Act plays the part that the environment names, if it names one, and does not return then. A program that calls [Run]
// calls it first thing.
func Act() {
	told, ok := os.LookupEnv(partVariable)
	if !ok {
		return
	}
	var p part
	err := json.Unmarshal([]byte(told), &p)
	if err == nil {
		ctx, drain := context.WithCancel(context.Background())
		a := &actor{part: p, traps: &traps{out: os.Stdout}}
		go a.obey(os.Stdin, drain)
		if err = a.play(ctx); err == nil {
			os.Exit(0)
		}
	}
	fmt.Fprintf(os.Stderr, "chaos: %s: %v\n", p.Role, err)
	os.Exit(1)
}

// An actor is a process of the cast, seen from within.
type actor struct {
	part
	traps *traps
}

// obey sets traps and drains as it is told, and ends this process with the one that tells.
func (a *actor) obey(in io.Reader, drain func()) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == "drain" {
			drain()
			continue
		}
		var p Point
		var n int64
		if _, err := fmt.Sscanf(lines.Text(), "arm %s %d", &p, &n); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: not understood: %q\n", lines.Text())
			os.Exit(1)
		}
		a.traps.arm(p, n)
		fmt.Fprintln(os.Stdout, "armed")
	}
	os.Exit(0)
}

func (a *actor) play(ctx context.Context) error {
	switch a.Role {
	case serviceRole:
		return a.serveLedger()
	case gatewayRole:
		return a.serveGateway(ctx)
	case libraryRole:
		return a.serveLibrary(ctx)
	}
	return fmt.Errorf("no such part: %q", a.Role)
}

// listen listens where it is told to, and says where that is. The address of a process that was killed may be taken for
// a moment.
func (a *actor) listen() (net.Listener, error) {
	for until := time.Now().Add(5 * time.Second); ; {
		l, err := net.Listen("tcp", a.Listen)
		switch {
		case err == nil:
			return trappedListener{l, a.traps}, nil
		case !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(until):
			return nil, fmt.Errorf("listen: %w", err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// drainTime is how long a front may take to end in order. What is not done then is cut short.
func (a *actor) drainTime() time.Duration { return 2 * a.Lease }

func announce(l net.Listener) { fmt.Fprintf(os.Stdout, "listening %s\n", l.Addr()) }

// sweep sweeps all the time, beside the claims (case 24).
func sweep(ctx context.Context, s driver.Store) {
	tick := time.NewTicker(50 * time.Millisecond)
	for range tick.C {
		s.Sweep(ctx, 100) //nolint:errcheck // one that failed is followed by another
	}
}
