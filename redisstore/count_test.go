package redisstore

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A slowServer has keys that end by themselves, and needs a second for each count.
type slowServer struct {
	mu     sync.Mutex
	values map[string]string
	until  map[string]time.Time
	counts int
}

func (f *slowServer) do(key string, args []string) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u, ok := f.until[key]; ok && !time.Now().Before(u) {
		delete(f.values, key)
	}
	value, there := f.values[key]
	switch args[0] {
	case "GET":
		if !there {
			return nil, nil
		}
		return value, nil
	case "SET":
		if args[3] == "NX" && there {
			return nil, nil
		}
		ms, err := strconv.Atoi(args[len(args)-1])
		f.values[key], f.until[key] = args[2], time.Now().Add(time.Duration(ms)*time.Millisecond)
		return "OK", err
	}
	f.counts++
	n := int64(f.counts)
	f.mu.Unlock()
	time.Sleep(time.Second)
	f.mu.Lock()
	return []any{"0", 10 + n, int64(0), n, int64(0), int64(1), []any{}}, nil
}

func TestField19_ACountThatTakesLongIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{values: map[string]string{}, until: map[string]time.Time{}}
		stores := []*Store{openFake(t, server.do), openFake(t, server.do), openFake(t, server.do)}
		ask := func(i int, want int64) {
			t.Helper()
			n, err := stores[i].Count(t.Context())
			if err != nil || n.Unknown != want || n.Records != 10+want {
				t.Errorf("counted %+v, error %v; want %d unknown", n, err, want)
			}
		}
		ask(0, 1) // takes a second
		for range 8 {
			time.Sleep(time.Second)
			ask(1, 1)
			ask(2, 1)
		}
		time.Sleep(time.Second)
		ask(1, 2)
		ask(0, 2)
		if server.counts != 2 {
			t.Errorf("three stores have counted %d times in ten seconds, want 2", server.counts)
		}
		// One that dies while it counts keeps the others from it for a while only.
		server.mu.Lock()
		server.until["semel:counting"] = time.Now().Add(10 * time.Second)
		server.mu.Unlock()
		ask(2, 2)
		time.Sleep(10 * time.Second)
		ask(2, 3)
	})
}
