package semel

import (
	"github.com/semelhq/semel/refusal"
)

// ProblemKind is what is fixed of the problems of a code.
type ProblemKind struct {
	Type      string
	Status    int
	Retryable bool
}

// ProblemKinds returns that of all codes.
func ProblemKinds() map[refusal.Code]ProblemKind {
	kinds := map[refusal.Code]ProblemKind{}
	for code, k := range problemKinds {
		kinds[code] = ProblemKind{k.slug, k.status, k.retryable}
	}
	return kinds
}

// IdentityChecked spares the guard its look at the identity secret's check value.
func IdentityChecked(g *Guard) { g.engine.SecretKnown() }

// The defaults.
const (
	DefaultCompressAbove = defaultCompressAbove
	DefaultMaxAttempts   = defaultMaxAttempts
	DefaultMaxBodyMemory = defaultMaxBodyMemory
	DefaultSettleWait    = defaultSettleWait
)
