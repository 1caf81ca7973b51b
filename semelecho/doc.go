// Package semelecho puts a [semel.Guard] in front of handlers of echo.
//
// echo answers the error that a handler returns after its middlewares have returned. A guard that is put in by
// echo.WrapMiddleware would see no answer. [Middleware] has echo's own error handler answer within the guard, so that
// the first answer and its replays are those of echo.
//
// What stands in echo's chain before Middleware sees every request; what stands behind it, only those that run. So
// authentication, whose principal [Scope] takes, stands before it. A middleware that makes answers of errors stands
// behind it: one before it gets no error of a request that ran under the guard. echo's Recover behind it makes an
// answer of a panic, which is replayed; before it, a panic leaves a run that is lost.
//
// A handler finds its operation by semel.FromContext(c.Request().Context()). One that returns nil without having
// written has given no answer, unless semel.Policy.EmptyOK is set; c.NoContent is one.
//
// echo uses its Context again when the handler has returned, so a guard must not answer before. For a policy with
// Patience or RespondAsync put the guard in front of echo, which is an http.Handler: guard.Wrap(e). A
// semel.Completer runs its requests by echo too: guard.Completer(e, …). What authenticates clients has to let them by.
package semelecho
