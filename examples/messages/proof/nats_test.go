package proof

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
)

const stream = "ORDERS"

// startNATS starts a server that keeps its streams on disk.
func startNATS(t *testing.T) (url string, restart func()) {
	t.Helper()
	options := server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	start := func() *server.Server {
		o := options // the server writes into it
		s, err := server.NewServer(&o)
		must(t, err)
		s.Start()
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("the server does not start")
		}
		return s
	}
	s := start()
	options.Port = s.Addr().(*net.TCPAddr).Port
	stop := func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
	t.Cleanup(func() { stop() })
	return s.ClientURL(), func() {
		stop()
		s = start()
	}
}

type natsBroker struct {
	js jetstream.JetStream
}

func openNATS(url string) (broker, error) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	return &natsBroker{js}, err
}

func (b *natsBroker) setUp(ctx context.Context) error {
	_, err := b.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"orders"}, Duplicates: time.Hour})
	if err != nil {
		return err
	}
	for _, name := range consumers {
		_, err := b.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxAckPending: 200})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *natsBroker) send(ctx context.Context, m *outbox.Message, again bool) error {
	out := &nats.Msg{Subject: m.Topic, Data: m.Payload, Header: nats.Header{"Message-Id": {m.ID}, "Key": {m.Key}}}
	if again { // as if the broker did not recognise it
		_, err := b.js.PublishMsg(ctx, out)
		return err
	}
	_, err := b.js.PublishMsg(ctx, out, jetstream.WithMsgID(m.ID))
	return err
}

func (b *natsBroker) consume(ctx context.Context, name string, handle func(context.Context, consumer.Message) consumer.Result) error {
	c, err := b.js.Consumer(ctx, stream, name)
	if err != nil {
		return err
	}
	it, err := c.Messages(jetstream.PullMaxMessages(16))
	if err != nil {
		return err
	}
	defer it.Stop()
	room := make(chan struct{}, 16)
	for ctx.Err() == nil {
		msg, err := it.Next()
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue
		}
		if err != nil {
			return err
		}
		room <- struct{}{}
		go func() {
			defer func() { <-room }()
			about, err := msg.Metadata()
			if err != nil {
				return
			}
			r := handle(ctx, consumer.Message{
				ID: msg.Headers().Get("Message-Id"), Topic: msg.Subject(), Payload: msg.Data(),
				Deliveries: int(about.NumDelivered), KeepAlive: msg.InProgress,
			})
			switch r.Action {
			case consumer.Ack:
				err = msg.Ack()
			case consumer.Term:
				err = msg.Term()
			default:
				err = msg.NakWithDelay(min(r.Delay, 500*time.Millisecond))
			}
			_ = err // an answer that is lost is another delivery
		}()
	}
	return ctx.Err()
}

func (b *natsBroker) first(ctx context.Context) (*order, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	o := newOrder()
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", seq, err)
		}
		o.add(m.Header.Get("Key"), m.Header.Get("Message-Id"), m.Data)
	}
	return o, nil
}
