package verify

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// through sends pieces through an ending and returns what came out, and how long the connection lasted. Between pieces
// it waits for gap.
func through(e ending, gap time.Duration, pieces ...string) (came string, took time.Duration) {
	began := time.Now()
	in, out := make(chan *stream.StreamChunk), make(chan *stream.StreamChunk)
	go e.Pipe(toxics.NewToxicStub(in, out))
	go func() {
		defer close(in)
		for _, p := range pieces {
			in <- &stream.StreamChunk{Data: []byte(p)}
			time.Sleep(gap)
		}
	}()
	for piece := range out {
		came += string(piece.Data)
	}
	return came, time.Since(began)
}

func TestAnEndingPassesWhatItSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			for _, c := range []struct {
				ending      ending
				least, most string // least is the beginning of what comes, and most has it for its beginning
			}{
				{ending{}, "hello ask more", "hello ask more"},
				{ending{Pass: passNone}, "", ""},
				{ending{Pass: passNone, Skip: 6}, "hello ", "hello "},
				{ending{Pass: passNone, Skip: 6, Within: 10_000}, "hello ", "hello "},
				{ending{Pass: passPart, Skip: 6}, "hello ", "hello as"},
				{ending{Pass: passPart, Skip: 7}, "hello a", "hello as"}, // the handshake ends within a piece
				{ending{Pass: passAll, Skip: 6}, "hello ask", "hello ask"},
				{ending{Pass: passAll, Skip: 6, Within: 10_000}, "hello ask", "hello ask more"},
				{ending{Pass: passNone, Skip: 100}, "hello ask more", "hello ask more"},
			} {
				c.ending.Patience = 1000
				got, _ := through(c.ending, time.Millisecond, "hello ", "ask", " more")
				if !strings.HasPrefix(got, c.least) || !strings.HasPrefix(c.most, got) {
					t.Fatalf("%+v: %q came, want %q to %q", c.ending, got, c.least, c.most)
				}
			}
		}
	})
}

// A server closes its connection after an answer. Whoever waits in front of a black hole does not see it.
func TestABlackHoleHidesTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		longest := time.Duration(0)
		for range 100 {
			_, took := through(ending{Pass: passNone, Within: 2000, Patience: 1000}, 0, "answer")
			longest = max(longest, took)
		}
		if longest < 100*time.Millisecond || longest > 2*time.Second {
			t.Errorf("the longest of 100 lasts %v, want up to 2 s", longest)
		}
	})
}

func TestAnEndingGivesUpWhatNobodyTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		in := make(chan *stream.StreamChunk)
		stub := toxics.NewToxicStub(in, make(chan *stream.StreamChunk))
		go (&ending{Patience: 1000}).Pipe(stub)
		for range 3 { // so that whoever writes is not held up
			in <- &stream.StreamChunk{Data: []byte("answer")}
		}
		close(in)
		synctest.Wait()
		if took := time.Since(began); took != time.Second || !stub.Closed() {
			t.Errorf("given up after %v, closed: %t", took, stub.Closed())
		}
	})
}
