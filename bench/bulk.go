package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/shop"
)

const bulkItems = 10_000

// bulkImport measures P-17: the shop's whole call, from the request's bytes to the stored answer's, beside the rows
// alone.
func bulkImport(ctx context.Context, m *meter) ([]row, error) {
	dir, err := os.MkdirTemp("", "semel-bench-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	h, closeShop, err := newShop(ctx, filepath.Join(dir, "shop.db"))
	if err != nil {
		return nil, err
	}
	defer closeShop()
	bare, err := newBareImport(filepath.Join(dir, "bare.db"))
	if err != nil {
		return nil, err
	}
	defer bare.Close() //nolint:errcheck // a temporary file
	items := manyItems()
	text, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	var serial atomic.Int64 // each import is that of another tenant
	ours := func(n int) {
		for range n {
			importItems(h, fmt.Sprint("tenant-", serial.Add(1)), text)
		}
	}
	floor := func(n int) {
		for range n {
			insertItems(ctx, bare, fmt.Sprint("tenant-", serial.Add(1)), items)
		}
	}
	r := m.compare(floor, ours) // the floor first: the goal is a share of its throughput
	peak := peakOf(func() { ours(1) })
	return []row{
		{"P-17", "bulk import of 10 000 items, SQLite, beside one prepared insert loop in one transaction", perImport(r.b), perImport(r.a), times(r.ratio), "≥ 0.5×"},
		{"P-17", "the same, memory of one import", fmt.Sprintf("%.0f MiB", float64(peak)/(1<<20)), "", "", "≤ 64 MiB"},
	}, nil
}

func perImport(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func newShop(ctx context.Context, path string) (http.Handler, func(), error) {
	db, err := database.Open(ctx, path, shop.Schema())
	if err != nil {
		return nil, nil, err
	}
	secret := func() []byte { b := make([]byte, 32); rand.Read(b); return b }
	s, err := shop.New(shop.Options{
		DB: db, Processor: "http://127.0.0.1:1", Auth: shop.Auth{InsecureDev: true}, Log: slog.New(slog.DiscardHandler),
		Secrets: shop.Secrets{Identity: secret(), Derivation: secret(), Encryption: secret()},
	})
	if err != nil {
		db.Close() //nolint:errcheck // a temporary file
		return nil, nil, err
	}
	return s, func() { db.Close() }, nil //nolint:errcheck // a temporary file
}

func manyItems() (b shop.BulkItems) {
	for i := range int64(bulkItems) {
		// Their names come in an order of their own, as in other people's files.
		b.Items = append(b.Items, shop.BulkItem{ClientItemID: fmt.Sprintf("sku-%05d", i*7919%bulkItems), Name: fmt.Sprint("Item ", i), Price: 100 + i, Quantity: i % 50})
	}
	return b
}

func importItems(h http.Handler, tenant string, text []byte) {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/bulk/items", bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Tenant-ID", tenant)
	r.Header.Set("Idempotency-Key", rand.Text())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !bytes.Contains(w.Body.Bytes(), []byte(`"created":10000`)) {
		panic(fmt.Sprintf("%d %.300s", w.Code, w.Body))
	}
}

func newBareImport(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`CREATE TABLE items (tenant TEXT NOT NULL, client_item_id TEXT NOT NULL, name TEXT NOT NULL, price BIGINT NOT NULL,
		quantity BIGINT NOT NULL, created BIGINT NOT NULL, changed BIGINT NOT NULL, batch BIGINT NOT NULL, PRIMARY KEY (tenant, client_item_id))`)
	return db, err
}

// insertItems is the floor.
func insertItems(ctx context.Context, db *sql.DB, tenant string, b shop.BulkItems) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	insert, err := tx.PrepareContext(ctx, "INSERT INTO items VALUES (?, ?, ?, ?, ?, 1, 1, 1)")
	if err != nil {
		panic(err)
	}
	for _, i := range b.Items {
		if _, err := insert.ExecContext(ctx, tenant, i.ClientItemID, i.Name, i.Price, i.Quantity); err != nil {
			panic(err)
		}
	}
	if err := tx.Commit(); err != nil {
		panic(err)
	}
}

// peakOf returns by how many bytes the process's memory grows while f runs, at most.
func peakOf(f func()) int64 {
	debug.FreeOSMemory()
	before, peak, ended := resident(), int64(0), make(chan struct{})
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		for {
			peak = max(peak, resident()-before)
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(ended)
	<-sampled
	return peak
}

// resident returns how much memory the process has, in bytes.
func resident() int64 {
	var size, pages int64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &pages)
	}
	if err != nil {
		panic(err)
	}
	return pages * int64(os.Getpagesize())
}
