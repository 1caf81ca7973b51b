// Package gateway is the reverse proxy that makes the requests of any HTTP service take effect once: semel's guard in
// front of [httputil.ReverseProxy].
//
// A request takes this way: handler.go (what is refused before, correlation) → table.go (its route) → the guard (key,
// principal, claim, replay) → upstream.go (what the upstream is sent, over a transport that never sends a request
// twice) → delivery.go (what the lack of an answer means) or outcome.go (what an answer means).
//
// A configuration comes as a [Config], from flags, or from a file: yamlfile.go (where things stand in it),
// configfile.go (which settings there are), check.go (what is wrong with them), reload.go (putting a changed one into
// service).
package gateway
