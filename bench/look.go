package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/redisstore"
)

const (
	scannedRecords = 200_000
	scannedRate    = 2000 // claims a second
	scannedSpan    = time.Second
)

// redisLook measures P-20: claims at a steady rate, while the store is scanned for what waits, and while it is not.
func redisLook(ctx context.Context, m *meter) ([]row, error) {
	r, err := newRedisServer()
	if err != nil {
		return nil, err
	}
	defer r.close()
	store, err := redisstore.Open(ctx, rueidisClient{r.client}, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	var serial atomic.Uint64
	callers(redisCallers, scannedRecords, func(int) { claimAndSettle(store, serial.Add(1)) })
	claims := func() float64 {
		return float64(quantile(claimsAtRate(store, &serial, scannedRate, scannedSpan, nil), .99))
	}
	claims() // opens the connections
	var quiet, busy, ratios []float64
	for range m.rounds {
		q := claims()
		scanning, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- store.Scan(scanning) }()
		b := claims()
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			return nil, err
		}
		quiet, busy, ratios = append(quiet, q), append(busy, b), append(ratios, b/q)
	}
	what := fmt.Sprintf("Redis, p99 of %d claims/s, while %d records are scanned for what waits beside not", scannedRate, scannedRecords)
	return []row{{"P-20", what, perOp(time.Duration(median(busy))), perOp(time.Duration(median(quiet))), times(median(ratios)), "≤ 1.2×"}}, nil
}
