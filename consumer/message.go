// Package consumer handles each message of a broker once. A broker delivers a message again whenever it can't be sure
// that the message was handled; a [Consumer] recognises the repetition by the message's id.
package consumer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

// Message is what a broker delivers.
type Message struct {
	// ID is the message's identity, the same in every delivery: any text. A message that is sent again on purpose needs a
	// new one.
	ID      string
	Payload []byte            // read-only
	Headers map[string]string // read-only
	Topic   string
	// Deliveries counts how often the broker has delivered the message, this time included. 0 if the broker does not say.
	Deliveries int
	// KeepAlive, if set, tells the broker that the message is still being worked on. It is called every
	// Options.KeepAlive until [Consumer.Handle] returns. Its error changes nothing: what counts is the lease in the
	// store. It must not block.
	KeepAlive func() error
}

// An Outcome says what has become of a message.
type Outcome uint8

// The outcomes of [Consumer.Handle].
const (
	// Failed means that the message is not handled: its handler has failed, or the store can't be asked.
	Failed Outcome = iota
	// Done means that the handler has run, and that this is recorded.
	Done
	// Duplicate means that the message was handled before. The handler has not run.
	Duplicate
	// Busy means that the message is being handled elsewhere, or that the outcome of its run is not known yet.
	Busy
	// Dead means that the message is given up. It was handed to Options.DeadLetter, now or at an earlier delivery.
	Dead
)

func (o Outcome) String() string {
	return [...]string{Failed: "failed", Done: "done", Duplicate: "duplicate", Busy: "busy", Dead: "dead"}[o]
}

// An Action is what the broker has to be told.
type Action uint8

// The actions of a [Result].
const (
	// Nack asks the broker to deliver the message again, after Result.Delay if the broker can delay.
	Nack Action = iota
	// Ack says that the message is handled.
	Ack
	// Term says that the message must not be delivered again, although it was not handled. A broker without such an
	// answer is told Ack.
	Term
)

func (a Action) String() string { return [...]string{Nack: "nack", Ack: "ack", Term: "term"}[a] }

// Result is what has become of a message, and what its broker has to be told. The zero Result asks for another delivery.
type Result struct {
	Outcome Outcome
	Action  Action
	Delay   time.Duration // with Nack: after what time another delivery is of use
	Err     error         // nil if the outcome is Done or Duplicate
}

var (
	// ErrNoID means that a message has no id, and that Options.ID gives it none.
	ErrNoID = errors.New("the message has no id")
	// ErrTooLarge means that a message's payload is larger than Options.MaxPayload.
	ErrTooLarge = errors.New("the message's payload is too large")
	// ErrExhausted means that Options.MaxAttempts runs of a message have not handled it. The last of them may have ended
	// with its process.
	ErrExhausted = errors.New("the message was run as often as Options.MaxAttempts allows")
)

// What the values of keys begin with that are not the id itself.
const (
	digested = "sha256:"
	letters  = "dead:"
)

// keyOf returns the value of the key that an id stands for: the id itself if it can be one, else its digest.
func keyOf(id string) string {
	fits := len(id) <= 255 && !strings.HasPrefix(id, digested) && !strings.HasPrefix(id, letters)
	for i := 0; i < len(id) && fits; i++ {
		c := id[i]
		fits = c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != ',' && c != ';'
	}
	if fits {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return digested + hex.EncodeToString(sum[:])
}

// letterOf returns the value of the key under which a message is a dead letter that can't be recorded under its id.
func letterOf(id string, fingerprint []byte) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(len(id)))
	b = append(append(b, id...), fingerprint...)
	sum := sha256.Sum256(b)
	return letters + hex.EncodeToString(sum[:])
}
