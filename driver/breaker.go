package driver

// A Breaker is a circuit breaker. While a store fails, it refuses requests to the store at once, and lets one through
// now and then to see whether the store works again. Allow returns an error to refuse. Else done is called once, with
// the result of the request: nil for success, or [context.Canceled] if the caller has left, which says nothing about
// the store. A guard's own requests outlast the client for whom they are made, so that no client can make one fail. A
// Breaker is called concurrently.
type Breaker interface {
	Allow() (done func(err error), err error)
}
