package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/memstore"
)

func Example() {
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Rerun, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	parked := func(_ context.Context, m consumer.Message, reason error) error {
		fmt.Println("parked:", m.ID, reason)
		return nil
	}
	mail := func(_ context.Context, m consumer.Message) error {
		if len(m.Payload) == 0 {
			return semel.Final(errors.New("nothing to send"))
		}
		fmt.Println("sent:", string(m.Payload))
		return nil
	}

	email, err := consumer.New(guard, "email", consumer.Options{DeadLetter: parked})
	if err != nil {
		log.Fatal(err)
	}
	for _, delivered := range []consumer.Message{
		{ID: "m1", Payload: []byte("hello")},
		{ID: "m1", Payload: []byte("hello")}, // delivered twice
		{ID: "m2"},
	} {
		result := email.Handle(context.Background(), delivered, mail)
		switch result.Action {
		case consumer.Ack: // handled, now or before
		case consumer.Nack: // deliver it again, after result.Delay
		case consumer.Term: // given up: it is a dead letter
		}
		fmt.Println(delivered.ID, result.Outcome, result.Action)
	}
	// Output:
	// sent: hello
	// m1 done ack
	// m1 duplicate ack
	// parked: m2 nothing to send
	// m2 dead term
}
