package semel

import (
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/digest"
)

// Kind says which face of the guard an operation belongs to. So a tenant and a consumer of the same name never get each
// other's operations.
type Kind string

// The kinds of operations.
const (
	KindHTTP    Kind = "http"
	KindDo      Kind = "do"
	KindMessage Kind = "message" // of package consumer
	KindSaga    Kind = "saga"    // of package saga
)

// Identify returns the ID of the operation (kind, scope, key) under an identity secret, as a guard with that secret
// does. It is for operators' tools that are given a key as plain text.
func Identify(secret []byte, kind Kind, scope, key string) driver.ID {
	return digest.New(secret).ID(string(kind), scope, key)
}
