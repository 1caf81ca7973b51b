package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

const shards = 64

// plainMap is the floor of P-3: a sharded map that copies the payload, once to put it and once more to replace it.
type plainMap struct {
	shards [shards]struct {
		mu sync.Mutex
		m  map[driver.ID][]byte
		_  [64]byte
	}
}

func newPlainMap() *plainMap {
	p := &plainMap{}
	for i := range p.shards {
		p.shards[i].m = map[driver.ID][]byte{}
	}
	return p
}

func (p *plainMap) put(id driver.ID, payload []byte) {
	s := &p.shards[id[20]%shards]
	c := make([]byte, len(payload))
	copy(c, payload)
	s.mu.Lock()
	s.m[id] = c
	s.mu.Unlock()
}

// idOf spreads a number as a digest would.
func idOf(n uint64) (id driver.ID) {
	for i := 0; i < len(id); i += 8 {
		n = n*6364136223846793005 + 1442695040888963407
		x := n ^ n>>29
		binary.LittleEndian.PutUint64(id[i:], x*0x9E3779B97F4A7C15)
	}
	return id
}

var stored = &driver.Response{
	Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: answer200,
}

func claimAndSettle(s driver.Store, n uint64) {
	ctx := context.Background()
	id := idOf(n)
	var token driver.Token
	binary.LittleEndian.PutUint64(token[:], n)
	rec, owned, err := s.Claim(ctx, id, driver.Claim{
		Token: token, Fingerprint: driver.Fingerprint{Raw: [16]byte(id[:16])}, OnLost: semel.Hold,
		Lease: 30 * time.Second, Retention: 24 * time.Hour, Operation: "POST /payments", Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	})
	if err != nil || !owned {
		panic(fmt.Sprint("claim: ", owned, err))
	}
	answer := *stored
	answer.Body = append([]byte(nil), answer200...)
	if _, owned, err := s.Settle(ctx, id, rec.Owner(), driver.Outcome{State: driver.Done, Response: &answer}); err != nil || !owned {
		panic(fmt.Sprint("settle: ", owned, err))
	}
}

// onAllCores splits n operations over the cores.
func onAllCores(n int, do func(i uint64)) {
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				do(uint64(i))
			}
		})
	}
	wg.Wait()
}

func memoryStore(_ context.Context, m *meter) ([]row, error) {
	claim := func(n int) {
		s := memstore.New()
		onAllCores(n, func(i uint64) { claimAndSettle(s, i) })
	}
	put := func(n int) {
		p := newPlainMap()
		onAllCores(n, func(i uint64) {
			id := idOf(i)
			p.put(id, answer200)
			p.put(id, answer200)
		})
	}
	r := m.compare(put, claim) // the floor first: the goal is a share of its throughput
	return []row{
		{"P-3", "memory store, claim + settle, all cores", perOp(r.b), perOp(r.a), times(r.ratio), "≥ 0.5×"},
		{"P-3", "bytes a record, besides id and answer", fmt.Sprintf("%.0f", bytesPerRecord()), "", "", "≤ 320"},
	}, nil
}

// bytesPerRecord fills a store with records that share one answer, and takes the id off.
func bytesPerRecord() float64 {
	const n = 500_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := memstore.New()
	for i := range uint64(n) {
		id := idOf(i)
		var token driver.Token
		binary.LittleEndian.PutUint64(token[:], i)
		correlation := fmt.Sprintf("0190f4d2-7a3c-7b1e-9c55-%012d", i)
		rec, _, err := s.Claim(context.Background(), id, driver.Claim{Token: token, Operation: "POST /payments", Correlation: correlation})
		if err == nil {
			_, _, err = s.Settle(context.Background(), id, rec.Owner(), driver.Outcome{State: driver.Done, Response: stored})
		}
		if err != nil {
			panic(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := float64(after.HeapAlloc-before.HeapAlloc) / n
	runtime.KeepAlive(s)
	return per - float64(len(driver.ID{}))
}
