package memstore_test

import (
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// spread returns ids as digests are: all bytes of the key's part differ.
func spread(n uint64) (id driver.ID) {
	x := n
	id[0] = 1 // all of one principal, so that its count is what all cores meet at
	for i := 16; i < len(id); i += 8 {
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(id[i:], z^z>>31)
	}
	return id
}

func answer() *driver.Response {
	return &driver.Response{
		Status: 201,
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/7"}},
		Body:   []byte(strings.Repeat("0123456789", 20)),
	}
}

// BenchmarkClaimSettle measures P-3: a claim and a settle of a new key each time, on every core. Compare it with
// BenchmarkFloor of the same run.
func BenchmarkClaimSettle(b *testing.B) {
	for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
		b.Run(p.String(), func(b *testing.B) {
			s, err := memstore.Open(memstore.Options{MaxRecords: 1 << 30, MaxBytes: 1 << 40, PrincipalShare: 1})
			if err != nil {
				b.Fatal(err)
			}
			var next atomic.Uint64
			a := answer()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := next.Add(1)
					id := spread(n)
					c := driver.Claim{
						Fingerprint: driver.Fingerprint{Raw: [16]byte(id[16:32])},
						Token:       driver.Token(id[32:48]),
						OnLost:      p,
						Operation:   "POST /payments",
						Correlation: "0f8fad5b-d9cb-469f-a165-70867728950e",
					}
					rec, owned, err := s.Claim(b.Context(), id, c)
					if err != nil || !owned {
						b.Fatal(owned, err)
					}
					own := *a
					own.Body = append([]byte(nil), a.Body...)
					if _, owned, err = s.Settle(b.Context(), id, rec.Owner(), driver.Outcome{State: driver.Done, Response: &own}); err != nil || !owned {
						b.Fatal(owned, err)
					}
				}
			})
		})
	}
}

// BenchmarkFloor is the least that the same work costs: a sharded map, the claim's data inserted, then updated with a
// copy of the answer.
func BenchmarkFloor(b *testing.B) {
	type record struct {
		token, fingerprint [16]byte
		until              time.Time
		operation, corr    string
		answer             *driver.Response
	}
	type shard struct {
		mu sync.Mutex
		m  map[driver.ID]record
		_  [64]byte
	}
	shards := make([]shard, 64)
	for i := range shards {
		shards[i].m = map[driver.ID]record{}
	}
	var next atomic.Uint64
	a := answer()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := next.Add(1)
			id := spread(n)
			sh := &shards[id[24]%64]
			sh.mu.Lock()
			if _, ok := sh.m[id]; !ok {
				sh.m[id] = record{
					token: [16]byte(id[32:48]), fingerprint: [16]byte(id[16:32]), until: time.Now().Add(30 * time.Second),
					operation: "POST /payments", corr: strings.Clone("0f8fad5b-d9cb-469f-a165-70867728950e"),
				}
			}
			sh.mu.Unlock()
			own := *a
			own.Body = append([]byte(nil), a.Body...)
			sh.mu.Lock()
			r := sh.m[id]
			r.answer, r.until = &own, time.Now().Add(24*time.Hour)
			sh.m[id] = r
			sh.mu.Unlock()
		}
	})
}
