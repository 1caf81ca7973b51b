// Package sagas proves that each saga ends done or compensated, with each effect and each compensation once, while the
// processes that run them are killed all the time, and the services that they call fail in every way.
package sagas
