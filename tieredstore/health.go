package tieredstore

import (
	"log/slog"
	"sync"
	"time"
)

// logEvery is the shortest time between two messages about a cache that fails.
const logEvery = 10 * time.Second

// health tells the log of a cache that fails, and how often it has, without flooding it.
type health struct {
	log *slog.Logger

	mu       sync.Mutex
	told     time.Time
	failures int // since then
}

func (h *health) failed(now time.Time, verb string, err error) {
	if h.log == nil {
		return
	}
	h.mu.Lock()
	h.failures++
	n := h.failures
	tells := h.told.IsZero() || elapsed(h.told, now) >= logEvery
	if tells {
		h.told, h.failures = now, 0
	}
	h.mu.Unlock()
	if tells {
		h.log.Warn("the cache in front of the store fails: repeats are answered by the durable store", "verb", verb, "err", err, "failures", n)
	}
}
