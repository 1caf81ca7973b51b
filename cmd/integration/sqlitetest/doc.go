// Package sqlitetest proves package sqlitestore with the driver that semel's binaries use.
package sqlitetest
