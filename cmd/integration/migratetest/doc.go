// Package migratetest proves that goose and golang-migrate make of the migrations' files what the stores make of them.
package migratetest
