package redisstore

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A slowServer has keys that end by themselves, and needs a second for each count, which it does in so many steps.
type slowServer struct {
	steps  int
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
	f.mu.Unlock()
	time.Sleep(time.Second / time.Duration(f.steps))
	f.mu.Lock()
	at, err := strconv.Atoi(args[3])
	if at < f.steps-1 {
		return []any{strconv.Itoa(at + 1), int64(0), int64(0), int64(0), int64(0), int64(1), []any{}}, err
	}
	f.counts++
	n := int64(f.counts)
	return []any{"0", 10 + n, int64(0), n, int64(0), int64(1), []any{}}, err
}

func TestField19_ACountThatTakesLongIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{steps: 300, values: map[string]string{}, until: map[string]time.Time{}}
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

// However slow the server is, a count of few keys is told to nobody else.
func TestACountOfFewKeysIsOfItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{steps: 256, values: map[string]string{}, until: map[string]time.Time{}}
		s := openFake(t, server.do)
		for want := range int64(3) {
			if n, err := s.Count(t.Context()); err != nil || n.Unknown != want+1 {
				t.Errorf("count %d: %+v, error %v", want+1, n, err)
			}
		}
	})
}
