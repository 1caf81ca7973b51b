package verify

import "slices"

// checks are all checks, in the order in which they run. Those that crash the target come last.
func checks() []*check {
	return slices.Concat(repeatChecks(), mismatchChecks(), keyChecks(), tenantChecks(), answerChecks(), policyChecks(),
		networkChecks(), processChecks())
}
