// Package broken is a small idempotency layer that can be given one bug at a time, so that a check that looks for the
// bug can be seen to find it, and people can see what the bug does. It shares no code with semel.
//
// Without a bug it is right, for one process in front of a handler. A request takes this way: layer.go (what is refused
// before) → key.go → fingerprint.go → claim.go (who may run, who gets an answer again) → run.go (the handler, with a
// lease that is renewed) → answer.go (what is stored, what is sent). Claims and answers count once they are in the file
// of journal.go.
//
// A run whose process died, or whose handler gave no answer, may have had its effect. The layer holds it: repeats are
// told that nobody knows.
//
// Each bug is a branch on the layer's bug, and the table of bugs.go says what it does.
package broken
