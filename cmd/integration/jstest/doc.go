// Package jstest runs the tests of the JavaScript client, and plays that client in a browser against a real gateway. It
// has nothing but tests. They need Node.js and Chromium: the machine's own, else packages of npm's, which are fetched
// once.
package jstest
