package driver

// A Breaker is a circuit breaker: while a store fails, it refuses requests to it at once, and lets one through now and
// then to see whether it works again. Allow returns an error to refuse; else done is called once, with what became of
// the request: nil for success, [context.Canceled] if whoever asked has left, which says nothing. A guard's own
// requests outlast the client for whom they are made, so that no client can make one fail. It is called concurrently.
type Breaker interface {
	Allow() (done func(err error), err error)
}
