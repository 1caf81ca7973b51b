package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/redisstore"
)

const (
	redisCallers = 256
	keptKeys     = 4096 // that replays choose from
	lockTime     = 30 * time.Second
	keepTime     = 24 * time.Hour
)

// A redisServer is a server of its own with a client, which pipelines by itself what is asked at once.
type redisServer struct {
	*servers.Redis
	client rueidis.Client
}

func newRedisServer() (*redisServer, error) {
	server, err := servers.NewRedis()
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		server.Close() //nolint:errcheck // its files are temporary
		return nil, fmt.Errorf("connect to Redis: %w", err)
	}
	return &redisServer{server, client}, nil
}

func (r *redisServer) close() {
	r.client.Close()
	r.Close() //nolint:errcheck // its files are temporary
}

// A rueidisClient is a [redisstore.Client].
type rueidisClient struct{ client rueidis.Client }

func (c rueidisClient) Do(ctx context.Context, _ string, args ...any) (any, error) {
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = arg.(string)
	}
	v, err := c.client.Do(ctx, c.client.B().Arbitrary(texts...).Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return v, err
}

// DoText makes it a [redisstore.TextClient].
func (c rueidisClient) DoText(ctx context.Context, _ string, args ...string) (text string, ok bool, err error) {
	text, err = c.client.Do(ctx, c.client.B().Arbitrary(args...).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", false, nil
	}
	return text, err == nil, err
}

// set is what the floors and the middleware write; it says whether it did.
func (r *redisServer) set(key, value string, nx bool, ms int64) bool {
	command := r.client.B().Set().Key(key).Value(value)
	var built rueidis.Completed
	if nx {
		built = command.Nx().PxMilliseconds(ms).Build()
	} else {
		built = command.PxMilliseconds(ms).Build()
	}
	err := r.client.Do(context.Background(), built).Error()
	if err != nil && !rueidis.IsRedisNil(err) {
		panic(fmt.Sprint("SET: ", err))
	}
	return err == nil
}

// get returns "" for nothing.
func (r *redisServer) get(key string) string {
	v, err := r.client.Do(context.Background(), r.client.B().Get().Key(key).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		panic(fmt.Sprint("GET: ", err))
	}
	return v
}

// recordKey is the key under which a store with the default prefix, or another, keeps a record.
func recordKey(prefix string, id driver.ID) string { return prefix + "{" + id.String() + "}" }

// redisFirst measures P-4.
func redisFirst(ctx context.Context, m *meter) ([]row, error) {
	r, err := newRedisServer()
	if err != nil {
		return nil, err
	}
	defer r.close()
	store, err := redisstore.Open(ctx, rueidisClient{r.client}, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	var serial atomic.Uint64 // no key comes twice
	n := serial.Add(1)
	claimOnly(store, n)
	running := r.get(recordKey("semel:", idOf(n)))
	n = serial.Add(1)
	claimAndSettle(store, n)
	done := r.get(recordKey("semel:", idOf(n)))

	ours := func(n int) {
		callers(redisCallers, n, func(int) { claimAndSettle(store, serial.Add(1)) })
	}
	floor := func(n int) {
		callers(redisCallers, n, func(int) {
			key := recordKey("floor:", idOf(serial.Add(1)))
			if !r.set(key, running, true, lockTime.Milliseconds()) {
				panic("SET NX: the key is taken")
			}
			r.set(key, done, false, keepTime.Milliseconds())
		})
	}
	c := m.each(redisCallers).compare(floor, ours) // the floor first: the goal is a share of its throughput
	what := fmt.Sprintf("Redis, claim + settle beside SET NX + SET of %d and %d bytes, %d callers", len(running), len(done), redisCallers)
	return []row{{"P-4", what, perOp(c.b), perOp(c.a), times(c.ratio), "≥ 0.75×"}}, nil
}

// replayOf claims an operation of claimAndSettle again, as a repeat does.
func replayOf(s driver.Store, n uint64) {
	id := idOf(n)
	rec, owned, err := s.Claim(context.Background(), id, driver.Claim{
		Token: driver.NewToken(), Fingerprint: driver.Fingerprint{Raw: [16]byte(id[:16])}, OnLost: semel.Hold,
		Lease: 30 * time.Second, Retention: 24 * time.Hour, Operation: "POST /payments", Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	})
	if err != nil || owned || rec.State != driver.Done || rec.Response == nil || len(rec.Response.Body) != len(answer200) {
		panic(fmt.Sprint("replay: ", owned, rec.State, err))
	}
}

// redisReplay measures P-5.
func redisReplay(ctx context.Context, m *meter) ([]row, error) {
	r, err := newRedisServer()
	if err != nil {
		return nil, err
	}
	defer r.close()
	store, err := redisstore.Open(ctx, rueidisClient{r.client}, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	for n := range uint64(keptKeys) {
		claimAndSettle(store, n)
	}
	var serial atomic.Uint64
	next := func() uint64 { return serial.Add(1) % keptKeys }
	gets := func(n int) {
		callers(redisCallers, n, func(int) {
			if r.get(recordKey("semel:", idOf(next()))) == "" {
				panic("GET: there is nothing")
			}
		})
	}
	again := func(n int) { callers(redisCallers, n, func(int) { replayOf(store, next()) }) }
	first := func(n int) { // each key comes once to a store that was just opened
		for ; n > 0; n -= keptKeys {
			fresh, err := redisstore.Open(ctx, rueidisClient{r.client}, redisstore.Options{})
			if err != nil {
				panic(fmt.Sprint("open: ", err))
			}
			callers(redisCallers, min(n, keptKeys), func(int) { replayOf(fresh, next()) })
		}
	}
	m = m.each(redisCallers)
	a, b := m.compare(gets, again), m.compare(gets, first) // the floor first: the goal is a share of its throughput
	what := fmt.Sprintf("Redis, replay beside GET of the same record, %d callers", redisCallers)
	return []row{
		{"P-5", what + ", process that knows the key", perOp(a.b), perOp(a.a), times(a.ratio), "≥ 0.85×"},
		{"P-5", what + ", process that does not", perOp(b.b), perOp(b.a), times(b.ratio), "≥ 0.75×"},
	}, nil
}

// redisMiddleware measures P-6: the peer is what middleware of this kind sends to Redis for a new key, with an answer
// that it need not even encode.
func redisMiddleware(ctx context.Context, m *meter) ([]row, error) {
	r, err := newRedisServer()
	if err != nil {
		return nil, err
	}
	defer r.close()
	store, err := redisstore.Open(ctx, rueidisClient{r.client}, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	usual := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer usual.Close() //nolint:errcheck // a temporary server
	lock := strings.Repeat("l", 36)
	answer := `{"status":201,"header":{"Content-Type":["application/json"]},"body":"` + string(answer200) + `"}`
	var serial atomic.Uint64
	key := func() string { return recordKey("middleware:", idOf(serial.Add(1))) }
	same := func(int) {
		k := key()
		if r.get(k) != "" || !r.set(k, lock, true, lockTime.Milliseconds()) {
			panic("SET NX: the key is taken")
		}
		r.set(k, answer, false, keepTime.Milliseconds())
	}
	other := func(int) {
		k := key()
		if err := usual.Get(ctx, k).Err(); err != redis.Nil { //nolint:errorlint // it is documented as that very value
			panic(fmt.Sprint("GET: ", err))
		}
		if ok, err := usual.SetNX(ctx, k, lock, lockTime).Result(); !ok || err != nil {
			panic(fmt.Sprint("SETNX: ", ok, err))
		}
		if err := usual.Set(ctx, k, answer, keepTime).Err(); err != nil {
			panic(fmt.Sprint("SET: ", err))
		}
	}
	ours := func(int) { claimAndSettle(store, serial.Add(1)) }
	var rows []row
	for _, who := range []struct {
		callers     int
		what, reach string
	}{{1, "one caller", "≥ 1.25×"}, {redisCallers, fmt.Sprintf("%d callers", redisCallers), "≥ 0.9×"}} {
		all := func(do func(int)) work { return func(n int) { callers(who.callers, n, do) } }
		for _, peer := range []struct {
			name, reach string
			do          func(int)
		}{{"the same client", who.reach, same}, {"go-redis", "shown", other}} {
			c := m.each(who.callers).compare(all(peer.do), all(ours))
			what := fmt.Sprintf("Redis, claim + settle beside GET, SETNX, SET over %s, %s", peer.name, who.what)
			rows = append(rows, row{"P-6", what, perOp(c.b), perOp(c.a), times(c.ratio), peer.reach})
		}
	}
	return rows, nil
}
