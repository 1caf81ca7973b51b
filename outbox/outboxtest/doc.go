// Package outboxtest proves outboxes: [Run] checks every promise of an [outbox.Store], and of a relay that works on it,
// under faults. [Memory] is an outbox for tests of publishers.
package outboxtest
