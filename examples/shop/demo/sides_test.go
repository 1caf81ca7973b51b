package demo

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// So many streams that some of them would still know the ids if the window were set once.
func TestTheBrokerForgetsWhatItHasSeen(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: t.TempDir(), DontListen: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	broker, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	const streams = 300
	send := func(n int) bool {
		ack, err := broker.Publish(t.Context(), fmt.Sprintf("subject%d", n), nil, jetstream.WithMsgID("an id"))
		if err != nil {
			t.Fatal(err)
		}
		return ack.Duplicate
	}
	for n := range streams {
		stream, err := broker.CreateStream(t.Context(), jetstream.StreamConfig{Name: fmt.Sprint("stream", n), Subjects: []string{fmt.Sprint("subject", n)}})
		if err != nil {
			t.Fatal(err)
		}
		send(n)
		if _, err := forgetIDs(t.Context(), broker, stream); err != nil {
			t.Fatal(err)
		}
	}
	for n := range streams {
		for end := time.Now().Add(30 * time.Second); send(n); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("stream %d still knows the id", n)
			}
		}
	}
}
