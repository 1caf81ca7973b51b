package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"runtime"
	"runtime/metrics"
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
	answer := *stored
	answer.Body = append([]byte(nil), answer200...)
	claimAndSettleAs(s, idOf(n), n, &answer)
}

func claimAndSettleAs(s driver.Store, id driver.ID, n uint64, answer *driver.Response) {
	ctx := context.Background()
	var token driver.Token
	binary.LittleEndian.PutUint64(token[:], n)
	rec, owned, err := s.Claim(ctx, id, driver.Claim{
		Token: token, Fingerprint: driver.Fingerprint{Raw: [16]byte(id[:16])}, OnLost: semel.Hold,
		Lease: 30 * time.Second, Retention: 24 * time.Hour, Operation: "POST /payments", Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	})
	if err != nil || !owned {
		panic(fmt.Sprint("claim: ", owned, err))
	}
	if _, owned, err := s.Settle(ctx, id, rec.Owner(), driver.Outcome{State: driver.Done, Response: answer}); err != nil || !owned {
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

// payment is an answer as services give it, with five headers.
var payment = &driver.Response{
	Status: http.StatusCreated, Body: answer200,
	Header: http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"200"}, "Date": {"Mon, 02 Jan 2006 15:04:05 GMT"},
		"Location": {"/payments/000000000001"}, "Etag": {`"000000000001"`},
	},
}

// paymentID spreads a number as a digest would, in the scope of one principal.
func paymentID(n uint64) driver.ID {
	id := idOf(n)
	copy(id[:16], "one principal\x00\x00\x00")
	return id
}

// roomy returns a memory store that takes all that one principal brings.
func roomy() *memstore.Store {
	s, err := memstore.Open(memstore.Options{MaxRecords: 1 << 30, MaxBytes: 1 << 40, PrincipalShare: 1})
	if err != nil {
		panic(err)
	}
	return s
}

func memoryStore(_ context.Context, m *meter) ([]row, error) {
	payload, _ := payment.MarshalBinary() //nolint:errcheck // it does not fail
	claim := func(n int) {
		s := roomy()
		onAllCores(n, func(i uint64) { claimAndSettleAs(s, paymentID(i), i, payment) })
	}
	put := func(n int) {
		p := newPlainMap()
		onAllCores(n, func(i uint64) {
			id := paymentID(i)
			p.put(id, payload)
			p.put(id, payload)
		})
	}
	r := m.compare(put, claim) // the floor first: the goal is a share of its throughput
	bytes, gc := costOfRecords()
	return []row{
		{"P-3", "memory store, claim + settle, all cores", perOp(r.b), perOp(r.a), times(r.ratio), "≥ 0.5×"},
		{"P-3", "bytes a record", fmt.Sprintf("%.0f", bytes), "", "", "≤ 700"},
		{"P-3", "collector, a record", fmt.Sprintf("%.0f ns", gc), "", "", "≤ 60 ns"},
	}, nil
}

// costOfRecords fills a store, and returns by how many bytes the heap has grown, and by how many nanoseconds of all cores
// one collection, for each record.
func costOfRecords() (bytes, gc float64) {
	const n = 500_000
	before, idle := collect()
	s := roomy()
	for i := range uint64(n) {
		claimAndSettleAs(s, paymentID(i), i, payment)
	}
	after, busy := collect()
	runtime.KeepAlive(s)
	return float64(after-before) / n, max(0, busy-idle) / n
}

// collect returns the size of the heap, and how many nanoseconds of all cores a collection of it takes: the least of
// several.
func collect() (heap int64, took float64) {
	spent := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	runtime.GC()
	for i := range 5 {
		metrics.Read(spent)
		before := spent[0].Value.Float64()
		runtime.GC()
		metrics.Read(spent)
		if one := (spent[0].Value.Float64() - before) * 1e9; i == 0 || one < took {
			took = one
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), took
}
