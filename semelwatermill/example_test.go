package semelwatermill_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelwatermill"
)

func Example() {
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Rerun, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	email, err := consumer.New(guard, "email", consumer.Options{Hold: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router := message.NewDefaultRouter(watermill.NopLogger{})

	router.AddMiddleware(semelwatermill.Middleware(email.Handle, semelwatermill.Options{}))
	router.AddConsumerHandler("email", "orders", broker, func(m *message.Message) error {
		fmt.Println("sent:", string(m.Payload))
		return nil
	})

	go router.Run(context.Background()) //nolint:errcheck // it ends with this program
	<-router.Running()
	for range 2 { // delivered twice
		if err := broker.Publish("orders", message.NewMessage("m1", []byte("hello"))); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// sent: hello
}
