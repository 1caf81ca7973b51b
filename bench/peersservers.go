package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/semelhq/semel/redisstore"
)

// redisPeers measures P-19 on Redis: the usual middleware, over the client that the store has, and over go-redis.
func redisPeers(ctx context.Context, m *meter) ([]row, error) {
	r, err := newRedisServer()
	if err != nil {
		return nil, err
	}
	defer r.close()
	store, err := redisstore.Open(ctx, rueidisClient{r.client}, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	other := redis.NewClient(&redis.Options{Addr: r.Addr(), PoolSize: peerCallers})
	defer other.Close() //nolint:errcheck // a temporary server
	var rows []row
	for _, peer := range []struct {
		name, prefix string
		keeper       keeper
	}{{"the same client", "rueidis-", rueidisKeeper{r}}, {"go-redis", "goredis-", goRedisKeeper{other}}} {
		measured, err := besidePeer(m, "Redis, beside GET, SETNX, SET over "+peer.name, peer.prefix, store, usual{keeper: peer.keeper})
		if err != nil {
			return nil, err
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

const (
	lockPrefix   = "peer:lock:"
	answerPrefix = "peer:answer:"
)

type rueidisKeeper struct{ r *redisServer }

func (k rueidisKeeper) look(key string) []byte {
	if v := k.r.get(answerPrefix + key); v != "" {
		return []byte(v)
	}
	return nil
}

func (k rueidisKeeper) lock(key string) bool {
	return k.r.set(lockPrefix+key, "1", true, lockTime.Milliseconds())
}

func (k rueidisKeeper) keep(key string, answer []byte) {
	k.r.set(answerPrefix+key, string(answer), false, keepTime.Milliseconds())
}

type goRedisKeeper struct{ client *redis.Client }

func (k goRedisKeeper) look(key string) []byte {
	v, err := k.client.Get(context.Background(), answerPrefix+"go:"+key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		panic(fmt.Sprint("GET: ", err))
	}
	return v
}

func (k goRedisKeeper) lock(key string) bool {
	ok, err := k.client.SetNX(context.Background(), lockPrefix+"go:"+key, 1, lockTime).Result()
	if err != nil {
		panic(fmt.Sprint("SETNX: ", err))
	}
	return ok
}

func (k goRedisKeeper) keep(key string, answer []byte) {
	if err := k.client.Set(context.Background(), answerPrefix+"go:"+key, answer, keepTime).Err(); err != nil {
		panic(fmt.Sprint("SET: ", err))
	}
}

// postgresPeers measures P-19 on PostgreSQL: the peer inserts a row first and updates it in the end, in two prepared
// statements, over a connection for each caller. Only where the key is taken it looks for the answer.
func postgresPeers(ctx context.Context, m *meter) ([]row, error) {
	p, store, err := newPostgresStore(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	defer store.Close() //nolint:errcheck // a temporary server
	if _, err := p.pool.Exec(ctx, "CREATE TABLE idempotency_keys (key text PRIMARY KEY, created timestamptz NOT NULL, answer bytea)"); err != nil {
		return nil, err
	}
	return besidePeer(m, "PostgreSQL, beside INSERT, UPDATE", "new-", store, usual{keeper: postgresKeeper{p}, lockFirst: true})
}

type postgresKeeper struct{ p *postgresServer }

func (k postgresKeeper) lock(key string) bool {
	tag, err := k.p.pool.Exec(context.Background(), "INSERT INTO idempotency_keys (key, created) VALUES ($1, now()) ON CONFLICT (key) DO NOTHING", key)
	if err != nil {
		panic(fmt.Sprint("INSERT: ", err))
	}
	return tag.RowsAffected() == 1
}

func (k postgresKeeper) keep(key string, answer []byte) {
	if _, err := k.p.pool.Exec(context.Background(), "UPDATE idempotency_keys SET answer = $2 WHERE key = $1", key, answer); err != nil {
		panic(fmt.Sprint("UPDATE: ", err))
	}
}

func (k postgresKeeper) look(key string) (answer []byte) {
	err := k.p.pool.QueryRow(context.Background(), "SELECT answer FROM idempotency_keys WHERE key = $1", key).Scan(&answer)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		panic(fmt.Sprint("SELECT: ", err))
	}
	return answer
}
