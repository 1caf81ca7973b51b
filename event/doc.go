// Package event has what a guard tells its observers: one [Event] for each decision, and one for each dangerous thing
// that it has seen.
package event
