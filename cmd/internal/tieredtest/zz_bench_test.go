package tieredtest

import (
	"testing"

	"github.com/semelhq/semel/tieredstore"
)

func BenchmarkP10(b *testing.B) {
	c := newCache(b)
	d := &counted{durable: makeSQLite(b)()}
	cl := sharedClient(b)
	s := tieredstore.New(d, redisOnly.options(c))
	m := tieredstore.New(d, both.options(c))
	k, id := ask(), newID()
	finish(b, s, id, k)
	load(b, s, id)
	load(b, m, id)
	buf := string(make([]byte, 400))
	cl.Do(b.Context(), "floor", "SET", "floor", buf)
	b.Run("floor", func(b *testing.B) {
		b.SetParallelism(128)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := cl.Do(b.Context(), "floor", "GET", "floor"); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("cacheget", func(b *testing.B) {
		b.SetParallelism(128)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, _, err := c.Get(b.Context(), id); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("tiered", func(b *testing.B) {
		b.SetParallelism(128)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, owned, err := s.Claim(b.Context(), id, retry(k)); err != nil || owned {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("memory", func(b *testing.B) {
		b.SetParallelism(128)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, owned, err := m.Claim(b.Context(), id, retry(k)); err != nil || owned {
					b.Fatal(err)
				}
			}
		})
	})
}
