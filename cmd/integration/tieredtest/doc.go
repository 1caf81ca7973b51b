// Package tieredtest proves package tieredstore with real servers: SQLite and PostgreSQL behind, Redis in front.
package tieredtest
