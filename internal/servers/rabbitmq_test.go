//go:build unix

package servers

import "testing"

// It takes long to start, so that it is started but once more.
func TestRabbitMQOutlivesItsEnd(t *testing.T) {
	t.Parallel()
	r, err := NewRabbitMQ()
	started(t, r, err)
	url, addr := r.URL(), loopback(r.port)
	must(t, r.Kill())
	if greeted(addr) == nil {
		t.Error("killed, it answers")
	}
	must(t, r.Start())
	must(t, r.Pause())
	if greeted(addr) == nil {
		t.Error("paused, it answers")
	}
	must(t, r.Resume())
	must(t, greeted(addr))
	must(t, r.Stop())
	if greeted(addr) == nil {
		t.Error("stopped, it answers")
	}
	if r.URL() != url {
		t.Errorf("it moved from %s to %s", url, r.URL())
	}
}
