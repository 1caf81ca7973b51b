package messages

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/internal/servers"
)

func TestR80_OrdersTakeEffectOnceByNATS(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	options := server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	start := func() *server.Server {
		o := options
		ns, err := server.NewServer(&o)
		must(t, err)
		ns.Start()
		if !ns.ReadyForConnections(limit) {
			t.Fatal("NATS does not start")
		}
		return ns
	}
	ns := start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	options.Port = ns.Addr().(*net.TCPAddr).Port

	nc, err := nats.Connect(ns.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	must(t, err)
	c, err := js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "email", AckWait: 2 * time.Second, MaxDeliver: -1})
	must(t, err)

	s.relay(ToNATS(js))
	consuming, err := FromNATS(context.Background(), c, func(ctx context.Context, m consumer.Message) consumer.Result {
		return s.handle(ctx, m, s.mail)
	})
	must(t, err)
	t.Cleanup(func() { consuming.Stop(); <-consuming.Closed() })
	s.takesEffectOnce(broker{restart: func() {
		ns.Shutdown()
		ns.WaitForShutdown()
		ns = start()
	}})
}

func TestR80_OrdersTakeEffectOnceByKafka(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(3), kfake.SeedTopics(3, "orders"), kfake.DataDir(t.TempDir()), kfake.SyncWrites()}
	cluster, err := kfake.NewCluster(options...)
	must(t, err)
	t.Cleanup(func() { cluster.Close() })
	addr := cluster.ListenAddrs()[0]
	port, err := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
	must(t, err)

	producer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerLinger(0))
	must(t, err)
	t.Cleanup(producer.Close)
	group, err := kgo.NewClient(
		kgo.SeedBrokers(addr), kgo.ConsumerGroup("email"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	must(t, err)
	t.Cleanup(group.Close)

	s.relay(ToKafka(producer))
	s.run(func(ctx context.Context) error {
		return FromKafka(ctx, group, func(ctx context.Context, m consumer.Message) consumer.Result { return s.handle(ctx, m, s.mail) })
	})
	s.takesEffectOnce(broker{restart: func() {
		cluster.Close()
		cluster, err = kfake.NewCluster(append(options, kfake.Ports(port))...)
		must(t, err)
	}})
}

func TestR80_OrdersTakeEffectOnceByRabbitMQ(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	rabbit, err := servers.NewRabbitMQ()
	must(t, err)
	t.Cleanup(func() { must(t, rabbit.Close()) })
	s.relay(ToRabbitMQ(rabbit.URL(), "orders"))
	s.run(func(ctx context.Context) error {
		return FromRabbitMQ(ctx, rabbit.URL(), "orders", func(ctx context.Context, m consumer.Message) consumer.Result { return s.handle(ctx, m, s.mail) })
	})
	s.takesEffectOnce(broker{restart: func() {
		must(t, rabbit.Kill())
		must(t, rabbit.Start())
	}})
}

func TestR80_OrdersTakeEffectOnceByRedisStreams(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	server, err := servers.NewRedis("--appendonly", "yes", "--appendfsync", "always")
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	must(t, client.XGroupCreateMkStream(t.Context(), "orders", "email", "0").Err())

	s.relay(ToRedis(client))
	s.run(func(ctx context.Context) error {
		return FromRedis(ctx, client, "orders", "email", "a", 200*time.Millisecond, func(ctx context.Context, m consumer.Message) consumer.Result {
			return s.handle(ctx, m, s.mail)
		})
	})
	s.takesEffectOnce(broker{restart: func() {
		must(t, server.Kill())
		must(t, server.Start())
	}})
}
