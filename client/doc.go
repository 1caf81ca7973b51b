// Package client sends requests that take effect once, however often they have to be sent.
//
// A [Transport] is an [http.RoundTripper] around another one. It gives each unsafe request an idempotency key, made
// once, and repeats the request under that key when an answer is lost or says that it is worth trying again: after a
// random delay, within a number of attempts, a budget for all calls of the client, the context's deadline, and the time
// for which the server remembers the key.
//
//	transport, err := client.New(nil, client.Options{})
//	hc := &http.Client{Transport: transport}
//
// With it hc behaves as ever: what comes back is a response, whatever its status, or an error if there was none. [Do]
// makes one call through hc with a key that the caller has kept, reads the whole answer as a part of each attempt, and
// returns an [*Error] that says what an idempotent call has to say when it ends otherwise.
//
// Where to look: call.go is the path of one call, classify.go says what is worth another attempt, backoff.go and
// retryafter.go when, key.go what is sent, and operation.go how an operation is asked about instead.
package client
