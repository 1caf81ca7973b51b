package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
)

// CacheOptions are a cache's settings. The zero value is valid.
type CacheOptions struct {
	// Prefix is what the names of all keys begin with. Defaults to "semel:cache:".
	Prefix string
	// Keep is how long an answer is kept at most. Defaults to 1 hour.
	Keep time.Duration
}

const (
	defaultCachePrefix = "semel:cache:"
	defaultKeep        = time.Hour
	// ticketLife is how long after a look the entry can be filled in.
	ticketLife = 10 * time.Second
)

// Cache keeps done records of a durable store, to answer repeats from. It may lose any of them at any time: a server
// that evicts is fine. It never takes back one that was forgotten: who did not find an entry gets a ticket, which the
// server keeps in the entry's place, and which is good for one Fill, within 10 seconds. Whatever removes the ticket, be
// it Forget, eviction or a restart, makes that Fill do nothing.
//
// Its clock is not the durable store's: an entry is gone before the rest of the retention that its record had when it
// was read has passed on this server's clock. It is safe for concurrent use.
type Cache struct {
	client   TextClient
	prefix   string
	keep     time.Duration
	reads    *line
	finished finished // those that this process has seen here
	clock    clock
}

// NewCache returns a cache on the client, which it does not use yet.
func NewCache(client Client, o CacheOptions) *Cache {
	if o.Prefix == "" {
		o.Prefix = defaultCachePrefix
	}
	if o.Keep <= 0 {
		o.Keep = defaultKeep
	}
	texts := textClient(client)
	return &Cache{client: texts, prefix: o.Prefix, keep: o.Keep, reads: newReads(texts)}
}

func (c *Cache) key(id driver.ID) string { return keyOf(c.prefix, id) }

// entryHead is what stands before a record in an entry: the letter R, the durable store's clock when it gave the record
// out, and the ticket, which is this server's clock at a time before.
const entryHead = 17

// Get returns the record if it is here. Its Now is not before the durable store's clock. Otherwise it returns an absent
// record and a ticket for the [Cache.Fill] that follows, or 0 if there is none to be had.
func (c *Cache) Get(ctx context.Context, id driver.ID) (rec driver.Record, ticket uint64, err error) {
	rec, ticket, err = c.get(ctx, id)
	if err != nil {
		return driver.Record{}, 0, fmt.Errorf("redisstore: cache: get: %w", err)
	}
	return rec, ticket, nil
}

func (c *Cache) get(ctx context.Context, id driver.ID) (rec driver.Record, ticket uint64, err error) {
	if c.finished.has(&id) {
		key := c.key(id)
		if entry, _, err := c.reads.ask(ctx, question{key: key}); err != nil || strings.HasPrefix(entry, "R") {
			rec, err = c.read(id, entry, c.clock.tell(), interpretError(err))
			return rec, 0, err
		}
		c.finished.note(&id, false)
	}
	sent := time.Now()
	r, err := cacheGetScript.ask(ctx, c.client, c.key(id), strconv.FormatInt(ticketLife.Milliseconds(), 10))
	if err != nil {
		return rec, 0, err
	}
	c.clock.set(r.now, sent, time.Now())
	if r.wrote {
		rec, err = c.read(id, r.value, r.now, nil)
		return rec, 0, err
	}
	ticket, err = strconv.ParseUint(r.value, 10, 64)
	return rec, ticket, err
}

// read returns the record of an entry at a time of this server, if it still reads as done.
func (c *Cache) read(id driver.ID, entry string, now driver.Time, err error) (rec driver.Record, _ error) {
	if err != nil {
		return rec, err
	}
	if len(entry) < entryHead || entry[0] != 'R' {
		return rec, fmt.Errorf("%w: entry of %d bytes", driver.ErrUnreadable, len(entry))
	}
	b := bytesOf(entry)
	if err := rec.UnmarshalBinary(b[entryHead:]); err != nil {
		return rec, err
	}
	given, issued := driver.Time(binary.BigEndian.Uint64(b[1:])), driver.Time(binary.BigEndian.Uint64(b[9:]))
	rec.Now = given.Add(max(0, now.Sub(issued)))
	if rec.State != driver.Done || rec.Reads(rec.OnLost) != driver.ReadsDone {
		return driver.Record{}, nil
	}
	c.finished.note(&id, true)
	return rec, nil
}

// Fill keeps a record that the durable store gave out after the ticket. It does nothing, without an error, if the
// record does not read as done, if it was forgotten since, or if the ticket is too old or lost.
func (c *Cache) Fill(ctx context.Context, id driver.ID, rec driver.Record, ticket uint64) error {
	if ticket == 0 || rec.State != driver.Done || rec.Reads(rec.OnLost) != driver.ReadsDone {
		return ctx.Err()
	}
	left := min(c.keep, rec.Settled.Add(rec.Retention).Sub(rec.Now))
	entry := binary.BigEndian.AppendUint64(append(make([]byte, 0, 1024), 'R'), uint64(rec.Now))
	entry, err := rec.AppendBinary(binary.BigEndian.AppendUint64(entry, ticket))
	if err == nil {
		_, err = cacheFillScript.tell(ctx, c.client, c.key(id), strconv.FormatUint(ticket, 10),
			strconv.FormatInt(left.Milliseconds(), 10), string(entry))
	}
	if err != nil {
		return fmt.Errorf("redisstore: cache: fill: %w", err)
	}
	return nil
}

// Forget drops the record, and voids all tickets that were given for it before.
func (c *Cache) Forget(ctx context.Context, id driver.ID) error {
	err := ctx.Err()
	if err == nil {
		_, err = c.client.Do(ctx, c.key(id), "DEL", c.key(id))
	}
	if err != nil {
		return fmt.Errorf("redisstore: cache: forget: %w", interpretError(err))
	}
	return nil
}
