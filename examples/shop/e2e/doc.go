// Package e2e tests the shop over HTTP, as its clients meet it: on SQLite, and on PostgreSQL, Redis and NATS.
package e2e
