package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/pgstore"
)

const (
	relayed   = 20_000 // messages of a round
	relayKeys = 1000
	published = 512 // at once without an outbox, as by a relay
)

// A natsServer is an embedded server of NATS with a stream on disk.
type natsServer struct {
	*server.Server
	dir string
}

func newNATSServer(ctx context.Context) (*natsServer, error) {
	dir, err := os.MkdirTemp("", "semel-bench-nats-")
	if err != nil {
		return nil, err
	}
	n := &natsServer{dir: dir}
	n.Server, err = server.NewServer(&server.Options{ServerName: "bench", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	n.Start()
	if !n.ReadyForConnections(time.Minute) {
		n.close()
		return nil, errors.New("NATS did not start within a minute")
	}
	p, err := n.publisher()
	if err == nil {
		_, err = p.js.CreateStream(ctx, jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders"}, Storage: jetstream.FileStorage})
		p.close()
	}
	if err != nil {
		n.close()
		return nil, fmt.Errorf("set up NATS: %w", err)
	}
	return n, nil
}

func (n *natsServer) close() {
	n.Shutdown()
	n.WaitForShutdown()
	os.RemoveAll(n.dir) //nolint:errcheck // its files are temporary
}

// A natsPublisher publishes a batch asynchronously and waits for all acknowledgements.
type natsPublisher struct {
	conn *nats.Conn
	js   jetstream.JetStream
}

func (n *natsServer) publisher() (*natsPublisher, error) {
	conn, err := nats.Connect(n.ClientURL())
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &natsPublisher{conn, js}, nil
}

func (p *natsPublisher) close() { p.conn.Close() }

// Publish implements [outbox.Publisher]. The message's id is what JetStream deduplicates by.
func (p *natsPublisher) Publish(ctx context.Context, batch []*outbox.Message) []error {
	errs := make([]error, len(batch))
	acks := make([]jetstream.PubAckFuture, len(batch))
	for i, m := range batch {
		msg := &nats.Msg{Subject: m.Topic, Data: m.Payload, Header: nats.Header{nats.MsgIdHdr: {m.ID}, "Key": {m.Key}}}
		acks[i], errs[i] = p.js.PublishMsgAsync(msg)
	}
	for i, ack := range acks {
		if errs[i] != nil {
			continue
		}
		select {
		case <-ack.Ok():
		case errs[i] = <-ack.Err():
		case <-ctx.Done():
			errs[i] = ctx.Err()
		}
	}
	return errs
}

// A relayBench has an outbox, and publishers for relays.
type relayBench struct {
	outboxes   []*pgstore.Outbox // each with a store and a publisher of its own, as in another process
	publishers []*natsPublisher
	postgres   *postgresServer
	next       int
}

// orders returns the messages of a round.
func (b *relayBench) orders() []outbox.Message {
	all := make([]outbox.Message, relayed)
	for i := range all {
		b.next++
		all[i] = outbox.Message{ID: strconv.Itoa(b.next), Topic: "orders", Key: strconv.Itoa(b.next % relayKeys), Payload: body200}
	}
	return all
}

// bare publishes messages without an outbox, and returns how long that took.
func (b *relayBench) bare(ctx context.Context) (time.Duration, error) {
	all := b.orders()
	batch := make([]*outbox.Message, len(all))
	for i := range all {
		batch[i] = &all[i]
	}
	start := time.Now()
	for len(batch) > 0 {
		n := min(published, len(batch))
		if err := errors.Join(b.publishers[0].Publish(ctx, batch[:n])...); err != nil {
			return 0, err
		}
		batch = batch[n:]
	}
	return time.Since(start), nil
}

// relayed adds messages, and returns how long so many relays take to send them.
func (b *relayBench) relayed(ctx context.Context, relays int) (time.Duration, error) {
	err := pgx.BeginFunc(ctx, b.postgres.pool, func(tx pgx.Tx) error {
		return b.outboxes[0].Add(ctx, tx, b.orders()...)
	})
	if err != nil {
		return 0, err
	}
	run, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	var running sync.WaitGroup
	var all []*outbox.Relay
	var sent uint64
	start := time.Now()
	for i := range relays {
		r, err := outbox.NewRelay(b.outboxes[i], b.publishers[i], outbox.RelayOptions{})
		if err != nil {
			return 0, err
		}
		all = append(all, r)
		running.Go(func() { r.Run(run) }) //nolint:errcheck // what it has sent is counted
	}
	for sent < relayed && run.Err() == nil {
		time.Sleep(time.Millisecond)
		sent = 0
		for _, r := range all {
			sent += r.Counts().Sent
		}
	}
	stop()
	running.Wait() // until all is settled
	took := time.Since(start)
	left, err := b.outboxes[0].Stats(ctx)
	if err == nil && (left.Pending > 0 || sent != relayed) {
		err = fmt.Errorf("%d messages are left, and %d were sent; want %d", left.Pending, sent, relayed)
	}
	return took, err
}

// inOrder reads the stream, and fails if a message is missing, twice there, or out of the order of its key.
func (b *relayBench) inOrder(ctx context.Context) error {
	c, err := b.publishers[0].js.OrderedConsumer(ctx, "orders", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	last := map[string]int{}
	for came := 0; came < b.next; {
		got, err := c.Fetch(5000, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		some := false
		for m := range got.Messages() {
			some = true
			came++
			n, err := strconv.Atoi(m.Headers().Get(nats.MsgIdHdr))
			if key := m.Headers().Get("Key"); err != nil || n <= last[key] {
				return fmt.Errorf("message %q came after %d of its key %s", m.Headers().Get(nats.MsgIdHdr), last[key], key)
			} else {
				last[key] = n
			}
		}
		if got.Error() != nil || !some {
			return fmt.Errorf("%d of %d messages are in the stream: %w", came, b.next, got.Error())
		}
	}
	return nil
}

// outboxRelay measures P-15.
func outboxRelay(ctx context.Context, m *meter) ([]row, error) {
	p, err := newPostgresServer(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	n, err := newNATSServer(ctx)
	if err != nil {
		return nil, err
	}
	defer n.close()
	b := &relayBench{postgres: p}
	for range 2 {
		store, err := pgstore.Open(ctx, p.pool, pgstore.Options{})
		if err != nil {
			return nil, err
		}
		defer store.Close() //nolint:errcheck // a temporary server
		o, err := pgstore.OpenOutbox(ctx, store, pgstore.OutboxOptions{})
		if err != nil {
			return nil, err
		}
		publisher, err := n.publisher()
		if err != nil {
			return nil, err
		}
		defer publisher.close()
		b.outboxes, b.publishers = append(b.outboxes, o), append(b.publishers, publisher)
	}
	var bares, ones, twos, ratios, both []float64
	for round := range m.rounds + m.rounds%2 + 1 { // each order as often
		bare, err := b.bare(ctx)
		if err != nil {
			return nil, err
		}
		// Who comes second finds more messages that were sent, and the server cleaning up after the first.
		order := []int{1, 2}
		if round%2 == 0 {
			order = []int{2, 1}
		}
		var took [3]time.Duration
		for _, relays := range order {
			if took[relays], err = b.relayed(ctx, relays); err != nil {
				return nil, err
			}
		}
		one, two := took[1], took[2]
		if round == 0 {
			continue // servers and connections are new
		}
		bares, ones, twos = append(bares, float64(bare)/relayed), append(ones, float64(one)/relayed), append(twos, float64(two)/relayed)
		ratios, both = append(ratios, float64(bare)/float64(one)), append(both, float64(one)/float64(two))
	}
	if err := b.inOrder(ctx); err != nil {
		return nil, err
	}
	m.settled(bares)
	each := func(v []float64) string { return perOp(time.Duration(median(v))) }
	return []row{
		{"P-15", "outbox, PostgreSQL to NATS JetStream on disk, beside publishing the same asynchronously", each(ones), each(bares), times(median(ratios)), "≥ 0.2×"},
		{"P-15", "outbox, two relays beside one, in order", each(twos), each(ones), times(median(both)), "≥ 1×"},
	}, nil
}
