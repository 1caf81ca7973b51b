// Package npmtest holds what verify is measured by: a payments API that owes its idempotency to a package from npm, and
// a table of what is right and wrong with it, found by asking it by hand.
//
// The API is testdata/server.js, and the package express-idempotency 1.0.6, of January 2026. It was chosen as a
// ready-made middleware that is used and kept up: it is downloaded about 15 000 times a month. The tests install it
// with npm, which has to be there with Node.js (18 or newer), and fetches it once.
package npmtest
