// Package semelwatermill lets a router of Watermill handle each message once, and lets an outbox send through a
// publisher of Watermill.
package semelwatermill
