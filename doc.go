// Package semel makes an operation take effect once, however often it is asked for, and gives every repeat the first
// answer.
//
// A [Guard] stands in front of a handler or a function. The caller sends a key with each request; the guard claims the
// key in a [driver.Store], runs the handler if it is the first, stores the answer, and replays it to whoever asks again
// with the same key and the same request.
//
//	guard, err := semel.New(memstore.New(), semel.ScopeFunc(accountOf), semel.Hold, semel.Options{})
//	mux.Handle("POST /payments", guard.Wrap(pay))
//
// The HTTP face follows draft-ietf-httpapi-idempotency-key-header-07. [Do] gives the same to jobs, commands and RPC.
//
// Where to look: http.go is the path of one request, identify.go says what was asked for, execute.go runs it, and
// replay.go answers a repeat. internal/engine claims the operation, keeps the claim while it runs, and makes its outcome
// durable; it knows no HTTP. The package driver says what a store promises, and has the state machine that every store
// implements; event is what a guard tells its observers, and refusal what it refuses a request for.
package semel
