// Package webhook sends the messages of an outbox to other people's HTTP endpoints, and receives such messages once.
// Both sides follow the Standard Webhooks specification 1.0.0 (https://www.standardwebhooks.com) with symmetric
// signatures: the headers webhook-id, webhook-timestamp and webhook-signature.
//
// A [Sender] is an [outbox.Publisher]. The relay that has it retries what has failed. The order of messages is not
// promised, and a message can arrive more than once, always under the same id.
//
// A [Receiver] verifies the signature, and a guard then runs the handler once for each id.
package webhook
