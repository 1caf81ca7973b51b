package servers

import (
	"sync"
	"testing"
)

// A Shared is a server that the tests of a package share. It is started when it is first asked for.
type Shared[S Server] struct {
	Start func() (S, error)

	once   sync.Once
	server S
	err    error
	up     bool
}

// Get returns the server, or fails the test if it did not start.
func (s *Shared[S]) Get(t testing.TB) S {
	t.Helper()
	s.once.Do(func() {
		s.server, s.err = s.Start()
		s.up = s.err == nil
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

// Close ends the server, if it was started; TestMain calls it once the tests have ended.
func (s *Shared[S]) Close() error {
	if !s.up {
		return nil
	}
	return s.server.Close()
}
