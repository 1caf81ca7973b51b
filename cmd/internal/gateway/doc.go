// Package gateway is the reverse proxy that makes the requests of any HTTP service take effect once: semel's guard in
// front of [httputil.ReverseProxy].
//
// A request takes this way: handler.go (what is refused before, correlation) → the guard (key, principal, claim, replay)
// → upstream.go (what the upstream is sent, over a transport that never sends a request twice) → outcome.go (what an
// answer, or the lack of one, means).
package gateway
