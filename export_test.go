package semel

// IdentityChecked spares the guard its look at the identity secret's check value.
func IdentityChecked(g *Guard) { g.engine.SecretKnown() }

// The defaults.
const (
	DefaultCompressAbove = defaultCompressAbove
	DefaultMaxAttempts   = defaultMaxAttempts
	DefaultMaxBodyMemory = defaultMaxBodyMemory
	DefaultSettleWait    = defaultSettleWait
)
