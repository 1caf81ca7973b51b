// Package webhooktest proves package webhook against other people's: the Go library of the Standard Webhooks
// specification, and the packages standardwebhooks and svix of npm. It has nothing but tests. They need Node.js with npm,
// which fetches the packages once, and Python.
package webhooktest
