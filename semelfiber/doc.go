// Package semelfiber puts a [semel.Guard] in front of handlers of fiber.
//
// fiber stands on fasthttp, not on net/http. Its adaptor runs the handlers after a net/http middleware has returned, so
// a guard would see no answer. [Middleware] makes a request of net/http for the guard, has fiber answer within it, its
// error handler included, and hands the outcome back to fiber.
//
// What stands in fiber's chain before Middleware sees every request; what stands behind it, only those that run. So
// authentication, whose principal [Scope] takes, stands before it. A middleware that makes answers of errors stands
// behind it: one before it gets no error of a request that ran under the guard. fiber's recover behind it makes an
// answer of a panic, which is replayed; before it, a panic leaves a run that is lost.
//
// A handler finds its operation by semel.FromContext(c.Context()). One that returns nil and leaves an empty 200 has
// given no answer, unless semel.Policy.EmptyOK is set: fiber does not tell whether it has set that status.
//
// What fiber can't do: fasthttp sends nothing before the handlers have returned, and uses their context again then. So
// a policy with Patience, RespondAsync, Complete or Stream is refused, and a body that the handler streams is read to
// its end first. It does not tell that a client has gone, so who waits for another run does so to the end of
// Policy.Wait. Trailers are not sent.
package semelfiber
