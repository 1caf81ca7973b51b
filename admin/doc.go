// Package admin is where operators look at operations and decide about them: by a command line or a page, the rules are
// the same. Every decision has an author and a reason, and is written into the store's audit trail before anything is
// changed.
package admin
