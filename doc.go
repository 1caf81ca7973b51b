// Package semel makes an operation take effect once, however often it is asked for, and gives every repeat the first
// answer.
//
// A [Guard] stands in front of a handler or a function. The caller sends a key with each request. The guard claims the
// key in a [driver.Store], runs the handler if the request is the first, and stores the answer. It replays the answer
// to every repeat: a request with the same key that asks for the same.
//
//	guard, err := semel.New(memstore.New(), semel.ScopeFunc(accountOf), semel.Hold, semel.Options{})
//	mux.Handle("POST /payments", guard.Wrap(pay))
//
// The HTTP face follows draft-ietf-httpapi-idempotency-key-header-07. [Do] does the same for jobs, commands and RPC.
//
// Where to look: http.go is the path of one request, identify.go finds out what was asked for, execute.go runs it, and
// replay.go answers a repeat. internal/engine claims the operation, keeps the claim while the operation runs, and makes
// its outcome durable; it does not know HTTP. The package driver says what a store promises, and has the state machine
// that every store implements. The package event has what a guard tells its observers, and the package refusal the
// codes with which it refuses a request.
package semel
