package client

import (
	"math"
	"sync"
)

// bucket holds the retries that are paid for, in millionths, so that ten tenths are one.
type bucket struct {
	mu                   sync.Mutex
	tokens, share, burst int64
}

const token = 1_000_000

func newBucket(b Budget) *bucket {
	if b.Off {
		return nil
	}
	burst := min(int64(b.Burst), math.MaxInt64/token-1) * token // a share more does not overflow either
	return &bucket{tokens: burst, share: int64(b.Share*token + 0.5), burst: burst}
}

// deposit is called once a call.
func (b *bucket) deposit() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.burst, b.tokens+b.share)
}

// withdraw pays for a retry, and reports whether it could.
func (b *bucket) withdraw() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < token {
		return false
	}
	b.tokens -= token
	return true
}
