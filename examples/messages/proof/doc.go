// Package proof counts effects: messages go through an outbox and a broker to two consumers, while relays and consumers
// are killed all the time and many messages are delivered twice.
package proof
