// Package outbox sends messages exactly when the data that they tell of is committed. A message is added in the
// business transaction, to a table beside the data; for PostgreSQL pgstore.Outbox does that. A [Relay] sends what is
// committed, at least once, under an id that stays the same, so that brokers and consumers recognise a repetition.
package outbox
