// Package bugtest shows that each check of verify finds the bug that it is there for, and no check a bug where there is
// none. It has nothing but tests: they run verify against the payments of "semel demo --bug", in processes that can be
// killed.
package bugtest
