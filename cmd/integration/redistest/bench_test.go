package redistest

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

const callers = 256

var payment = driver.Outcome{State: driver.Done, Response: &driver.Response{
	Status: 201,
	Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/payments/7"}},
	Body:   bytes.Repeat([]byte("x"), 512),
}}

// BenchmarkFirst compares a first execution with the two writes that it can't do with less than (P-4).
func BenchmarkFirst(b *testing.B) {
	each(b, func(b *testing.B, client redisstore.Client) {
		value := string(bytes.Repeat([]byte("x"), 700))
		b.Run("floor", func(b *testing.B) {
			atOnce(b, func(ctx context.Context) error {
				key := "floor:" + newID().String()
				if _, err := client.Do(ctx, key, "SET", key, "running", "NX", "PX", "30000"); err != nil {
					return err
				}
				_, err := client.Do(ctx, key, "SET", key, value, "PX", "600000")
				return err
			})
		})
		b.Run("semel", func(b *testing.B) {
			s := open(b, client, redisstore.Options{})
			atOnce(b, func(ctx context.Context) error {
				id := newID()
				rec, _, err := s.Claim(ctx, id, ask(semel.Hold))
				if err != nil {
					return err
				}
				_, _, err = s.Settle(ctx, id, rec.Owner(), payment)
				return err
			})
		})
	})
}

// BenchmarkReplay compares a repeat with the read of a value of the same size (P-5).
func BenchmarkReplay(b *testing.B) {
	each(b, func(b *testing.B, client redisstore.Client) {
		s := open(b, client, redisstore.Options{})
		id, c := newID(), ask(semel.Hold)
		rec := claim(b, s, id, c)
		settle(b, s, id, rec.Owner(), payment)
		key := "floor:" + id.String()
		do(b, client, key, "SET", key, string(bytes.Repeat([]byte("x"), 880)))
		b.Run("floor", func(b *testing.B) {
			atOnce(b, func(ctx context.Context) error {
				_, err := client.Do(ctx, key, "GET", key)
				return err
			})
		})
		b.Run("semel", func(b *testing.B) {
			atOnce(b, func(ctx context.Context) error {
				_, _, err := s.Claim(ctx, id, retry(c))
				return err
			})
		})
	})
}

func each(b *testing.B, bench func(b *testing.B, client redisstore.Client)) {
	for _, lib := range clientLibraries {
		b.Run(lib.name, func(b *testing.B) { bench(b, lib.connect(b, single.Get(b).Addr())) })
	}
}

// atOnce also reports what processor time an operation takes here and on the server, which a busy machine does not
// change by much.
func atOnce(b *testing.B, do func(ctx context.Context) error) {
	here, there := cpu(b)
	b.SetParallelism(callers / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := do(b.Context()); err != nil {
				b.Error(err)
				return
			}
		}
	})
	hereNow, thereNow := cpu(b)
	b.ReportMetric((hereNow-here)*1e6/float64(b.N), "µs-here/op")
	b.ReportMetric((thereNow-there)*1e6/float64(b.N), "µs-there/op")
}

// cpu returns the seconds that this process and the server have used.
func cpu(b *testing.B) (here, there float64) {
	b.Helper()
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	here = time.Duration(own.Utime.Nano() + own.Stime.Nano()).Seconds()
	info, _ := do(b, rueidisTo(b, single.Get(b).Addr()), "", "INFO", "cpu").(string)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			there += seconds
		}
	}
	return here, there
}
