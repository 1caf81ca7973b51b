package pgstore

import "sync"

// A meeting is where n goroutines wait for each other, again and again.
type meeting struct {
	mu   sync.Mutex
	cond *sync.Cond
	n    int
	here int
	turn int
	been map[int]bool
}

func newMeeting(n int) *meeting {
	m := &meeting{n: n, been: map[int]bool{}}
	m.cond = sync.NewCond(&m.mu)
	return m
}

// meet waits until all have come.
func (m *meeting) meet() {
	m.mu.Lock()
	defer m.mu.Unlock()
	turn := m.turn
	if m.here++; m.here == m.n {
		m.here = 0
		m.turn++
		m.cond.Broadcast()
	}
	for turn == m.turn {
		m.cond.Wait()
	}
}

// meetOnce meets the first time that who comes.
func (m *meeting) meetOnce(who int) {
	m.mu.Lock()
	first := !m.been[who]
	m.been[who] = true
	m.mu.Unlock()
	if first {
		m.meet()
	}
}
