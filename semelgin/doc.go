// Package semelgin puts a [semel.Guard] in front of handlers of gin.
//
// gin sends a status, and the answer to a path without a route, when its handlers have returned. A guard that is put in
// by gin.WrapH would take that for no answer. [Middleware] has it answered within the guard, so that the first answer
// and its replays are those of gin.
//
// What stands in gin's chain before Middleware sees every request; what stands behind it, only those that run. So
// authentication, whose principal [Scope] takes, stands before it. gin.Recovery behind it makes an answer of a panic,
// which is replayed; before it, a panic leaves a run that is lost.
//
// A handler finds its operation by semel.FromContext(c.Request.Context()). One that sets no status and writes nothing
// has given no answer, unless semel.Policy.EmptyOK is set.
//
// gin uses its Context again when the handlers have returned, so a guard must not answer before. For a policy with
// Patience or RespondAsync put the guard in front of the engine, which is an http.Handler: guard.Wrap(engine). A
// semel.Completer runs its requests by the engine too: guard.Completer(engine, …). What authenticates clients has to
// let them by.
package semelgin
