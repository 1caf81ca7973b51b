package semel

import "github.com/semelhq/semel/driver"

// LostPolicy says what becomes of an operation whose run was lost: it has no answer, but may have had an effect.
type LostPolicy = driver.LostPolicy

const (
	// Hold never runs it again: at most once. Repeats are told that the outcome is unknown, until an operator or
	// reconcile decides.
	Hold = driver.Hold
	// Rerun runs it again. The handler must be safe to run again: it is transactional, or resumable, or its downstream
	// deduplicates by a derived key.
	Rerun = driver.Rerun
)

// Forever is a retention without an end.
const Forever = driver.Forever
