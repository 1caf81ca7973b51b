// Package admin lets operators look at operations and decide about them. The rules are the same for a command line and
// for a page. Every decision has an author and a reason, and is written into the store's audit trail before anything is
// changed.
package admin
