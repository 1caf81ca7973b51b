package redisstore

import (
	"strconv"
	"sync"
	"testing"

	"github.com/semelhq/semel/driver"
)

// SCAN may show a key more than once, also in one reply. The record is given once: when it matches, even if it did not
// where the key was shown first.
func TestR52_AKeyThatIsShownTwiceIsGivenOnce(t *testing.T) {
	t.Parallel()
	c := claimOf(t)
	c.Retention, c.Tombstone = driver.Forever, 0
	frame, err := newFrame(&c)
	if err != nil {
		t.Fatal(err)
	}
	running := frame[:47] + "\x7f\xff\xff\xff\xff\xff\xff\xff" + frame[55:] // its lease lasts for ever
	lapsed := frame                                                         // its lease has ended at time 0
	id := driver.ID{1}
	for what, row := range map[string]struct {
		shown  [][]any // the keys in the replies of the script that goes through them
		frames []string
		given  int
	}{
		"twice in one reply":               {[][]any{{"it", "it"}}, []string{lapsed, lapsed}, 1},
		"in two replies":                   {[][]any{{"it"}, {"it"}}, []string{lapsed, lapsed}, 1},
		"in two replies, lapsed meanwhile": {[][]any{{"it"}, {"it"}}, []string{running, lapsed}, 1},
		"in two replies, running":          {[][]any{{"it"}, {"it"}}, []string{running, running}, 0},
	} {
		var mu sync.Mutex
		loads := 0
		s := openFake(t, nil)
		s.client.(*fake).do = func(_ string, args []string) (any, error) {
			if args[1] == scanScript.digest {
				at, err := strconv.Atoi(args[3])
				if err != nil {
					t.Fatal(err)
				}
				keys := make([]any, len(row.shown[at]))
				for i := range keys {
					keys[i] = s.key(id)
				}
				return []any{strconv.Itoa((at + 1) % len(row.shown)), int64(0), int64(0), int64(0), int64(0), int64(5), keys}, nil
			}
			mu.Lock() // both of one reply may be loaded at once
			defer mu.Unlock()
			loads++
			return "01700000000 5 " + row.frames[min(loads, len(row.frames))-1], nil
		}
		given := 0
		err := s.List(t.Context(), driver.Query{Reading: driver.ReadsFree}, func(got driver.ID, _ driver.Record) bool {
			if got != id {
				t.Errorf("%s: %s is listed, want %s", what, got, id)
			}
			given++
			return true
		})
		if err != nil || given != row.given {
			t.Errorf("%s: it is given %d times, want %d; error %v", what, given, row.given, err)
		}
	}
}
