// Package webtest plays the checkout page in a browser, against a shop and a card processor whose ledger is counted. It has
// nothing but tests. They need Chromium, and Node.js for the rules of accessibility.
package webtest
