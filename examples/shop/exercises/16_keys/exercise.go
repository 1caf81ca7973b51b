// Package keys is exercise 16: what a key is made of.
package keys

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// A Click is one attempt to send what somebody wants.
type Click struct {
	User   string
	Body   string    // of the request
	At     time.Time // of this attempt
	Wish   string    // a random UUID, made when the page offered the button; the next offer has another one
	Number int       // of the attempt
}

// Key is the Idempotency-Key that a click sends. Attempts of one wish have the same; two wishes have two, even if they
// are equal: who buys the same book twice wants two. A key tells nothing about the user.
//
// Change this function and Identity.
func Key(c Click) string {
	return fmt.Sprintf("%s-%x", c.User, sha256.Sum256([]byte(c.Body)))
}

// Identity is under what the service stores an operation. Keys are made by clients: two tenants may send the same, and
// neither may see the other's answer.
func Identity(tenant, key string) string { return tenant + key }
