package memstore_test

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// A full store has grown by what MaxBytes allows, whatever it is full of. Other tests must not run meanwhile.
func TestR60_MaxBytesIsWhatTheProcessGrowsBy(t *testing.T) {
	const limit = 6 << 20
	headers := http.Header{
		"Content-Type": {"application/json"}, "Location": {"/payments/000000000007"}, "Etag": {`"000000000007"`},
		"Cache-Control": {"no-store"}, "X-Request-Id": {"0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a"},
	}
	answered := func(size int, fields http.Header) func(*testing.T, *memstore.Store, driver.ID, driver.Record) error {
		body := []byte(strings.Repeat("x", size))
		return func(t *testing.T, s *memstore.Store, id driver.ID, rec driver.Record) error {
			_, _, err := s.Settle(t.Context(), id, rec.Owner(), driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 201, Header: fields, Body: body}})
			return err
		}
	}
	one := func(int) string { return "one" }
	each := func(n int) string { return fmt.Sprint("principal ", n) }
	for _, c := range []struct {
		name      string
		principal func(n int) string
		then      func(*testing.T, *memstore.Store, driver.ID, driver.Record) error
	}{
		{"runs", one, func(*testing.T, *memstore.Store, driver.ID, driver.Record) error { return nil }},
		{"runs of a principal each", each, func(*testing.T, *memstore.Store, driver.ID, driver.Record) error { return nil }},
		{"small answers", one, answered(200, headers)},
		{"small answers of a principal each", each, answered(200, headers)},
		{"large answers", one, answered(10_000, headers)},
		{"answers without a body", one, answered(0, nil)},
		{"steps", one, func(t *testing.T, s *memstore.Store, id driver.ID, rec driver.Record) (err error) {
			for step := 0; step < 5 && err == nil; step++ {
				_, err = s.SaveStep(t.Context(), id, rec.Owner(), fmt.Sprint("step ", step), make([]byte, 100))
			}
			return err
		}},
	} {
		s, err := memstore.Open(memstore.Options{MaxRecords: 1 << 30, MaxBytes: limit, PrincipalShare: 1})
		if err != nil {
			t.Fatal(err)
		}
		before, n := heap(), 0
		for ; err == nil; n++ {
			claim := ask(time.Hour)
			claim.OnLost, claim.Correlation = driver.Rerun, "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a"
			id := of(c.principal(n), n)
			id[24] = byte(n % 4) // few shards, which are as full as those of a large store
			var rec driver.Record
			if rec, _, err = s.Claim(t.Context(), id, claim); err == nil {
				err = c.then(t, s, id, rec)
			}
		}
		if !errors.Is(err, driver.ErrFull) {
			t.Fatalf("%s: %v", c.name, err)
		}
		grown := heap() - before
		t.Logf("%s: %d records take %d bytes each", c.name, n, grown/int64(n))
		if grown < limit*8/10 || grown > limit*12/10 {
			t.Errorf("%s: a store of %d bytes has grown by %d, with %d records", c.name, limit, grown, n)
		}
		runtime.KeepAlive(s)
	}
}

// What has gone makes room for others of any kind, and the process does not grow for them.
func TestR60_WhatHasGoneServesAgain(t *testing.T) {
	const limit = 3 << 20
	s, c := open(t, memstore.Options{MaxRecords: 1 << 30, MaxBytes: limit})
	before := heap()
	for _, size := range []int{0, 100, 5000, 30, 1000} {
		body := make([]byte, size)
		var err error
		for n := 0; err == nil; n++ {
			claim, id := ask(time.Minute), id(n)
			claim.OnLost = driver.Rerun
			id[24] = byte(n % 4)
			var rec driver.Record
			if rec, _, err = s.Claim(t.Context(), id, claim); err == nil {
				_, _, err = s.Settle(t.Context(), id, rec.Owner(), driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 200, Body: body}})
			}
		}
		c.Advance(2 * time.Hour)
		if _, err := s.Sweep(t.Context(), 1<<30); err != nil || s.Len() > 0 {
			t.Fatalf("%d records are left: %v", s.Len(), err)
		}
	}
	if grown := heap() - before; grown > limit*13/10 {
		t.Errorf("a store of %d bytes has grown by %d", limit, grown)
	}
	runtime.KeepAlive(s)
}

// Nothing that a store was given or has returned leads into it.
func TestAnAnswerIsSharedWithNobody(t *testing.T) {
	t.Parallel()
	s, _ := open(t, memstore.Options{})
	answer := func() *driver.Response {
		return &driver.Response{
			Status: 200, Codec: "gzip", Body: []byte("body"),
			Header: http.Header{"A": {"1", "2"}, "B": {"3"}, "None": nil}, Trailer: http.Header{"T": {"4"}},
		}
	}
	spoil := func(rec driver.Record) {
		copy(rec.Response.Body, "XXXX")
		rec.Response.Header["A"][1] = "X"
		_ = append(rec.Response.Header["A"], "X")
		rec.Response.Header["C"] = []string{"X"}
		rec.Response.Trailer["T"][0] = "X"
		rec.Response.Status = 500
	}
	c := ask(time.Hour)
	rec := claim(t, s, id(0), c)
	spoil(settle(t, s, id(0), rec.Owner(), driver.Outcome{State: driver.Done, Response: answer()}))
	for range 2 {
		got := load(t, s, id(0))
		if !reflect.DeepEqual(got.Response, answer()) {
			t.Fatalf("the answer has become %+v", got.Response)
		}
		spoil(got)
		repeat, owned, err := s.Claim(t.Context(), id(0), c)
		if owned || err != nil || !reflect.DeepEqual(repeat.Response, answer()) {
			t.Fatalf("the answer is replayed as %+v, owned is %t, %v", repeat.Response, owned, err)
		}
		spoil(repeat)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
