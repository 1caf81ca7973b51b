// Package gateway is exercise 11: in front of a service that knows nothing of keys.
package gateway

import "github.com/semelhq/semel"

// Policy is that of a gateway in front of a service that can't be changed. The service charges a card whenever it is
// asked. Its answer can be lost: then nobody knows whether it has charged, and the client asks again, with its key.
//
// Change this function.
func Policy() semel.Policy {
	return semel.Policy{OnLost: semel.Rerun}
}
