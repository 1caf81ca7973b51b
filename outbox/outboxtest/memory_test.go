package outboxtest

import (
	"testing"
	"time"

	"github.com/semelhq/semel/outbox"
)

// The suite proves, as far as a store can keep them, R-61 of the outbox and R-83, and what case 30, case 31, case 32 and
// case 40 ask of it.
func TestMemoryKeepsThePromisesOfAnOutbox(t *testing.T) {
	Run(t, func(*testing.T) Storage {
		var shared *Memory
		return Storage{
			Open: func(t *testing.T, o outbox.Options) outbox.Store {
				if shared == nil {
					m, err := NewMemory(o)
					if err != nil {
						t.Fatal(err)
					}
					shared = m
					return m
				}
				return &Memory{o, shared.messages}
			},
			Begin:   func(_ *testing.T, s outbox.Store) Tx { return s.(*Memory).Begin() },
			Advance: func(d time.Duration) { shared.Advance(d) },
		}
	})
}
