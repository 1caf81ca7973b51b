package answer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/budget"
)

// room returns a budget of so many bytes, all of which one principal may have.
func room(n int) *budget.Budget {
	b := &budget.Budget{}
	b.Set(n, 1)
	return b
}

func taken(b *budget.Budget) int64 {
	n, _ := b.Use()
	return n
}

const text = "0123456789abcdefghij"

// appended appends text in pieces of so many bytes, and returns the first error.
func appended(b *Body, text string, piece int, filed bool) (err error) {
	for rest := text; rest != ""; rest = rest[min(len(rest), piece):] {
		if failed := Append(b, rest[:min(len(rest), piece)], filed); err == nil {
			err = failed
		}
	}
	return err
}

// A body is in memory as long as it is within the limit and there is room, then in a file or nowhere, and all that it has
// taken is given back.
func TestR38_ABodyIsInMemoryOrInAFileOrNowhere(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		limit        int64
		memory, disk int
		filed        bool
		why          error // it is not whole in memory
		failed       error // of Append
		sent         string
	}{
		{"in memory", 20, 100, 0, true, nil, nil, text},
		{"as large as the limit, and the room", 20, 20, 0, true, nil, nil, text},
		{"above the limit", 19, 100, 100, true, ErrTooLarge, nil, text},
		{"above the limit, and no file wanted", 19, 100, 100, false, ErrTooLarge, nil, ""},
		{"no limit but 0", 0, 100, 100, true, ErrTooLarge, nil, text},
		{"no room in memory", 100, 10, 100, true, budget.ErrNoRoom, nil, text},
		{"no room at all in memory", 100, 0, 20, true, budget.ErrNoRoom, nil, text},
		{"no room in memory, and no file wanted", 100, 10, 100, false, budget.ErrNoRoom, nil, ""},
		{"no room in either", 100, 10, 12, true, budget.ErrNoRoom, budget.ErrNoRoom, ""},
		{"no room at all in either", 100, 0, 0, true, budget.ErrNoRoom, budget.ErrNoRoom, ""},
	} {
		for _, piece := range []int{1, 3, 7, 20} {
			dir := t.TempDir()
			b := &Body{Limit: tc.limit, Held: room(tc.memory), Files: room(tc.disk), Principal: driver.ScopeID{1}, Dir: dir}
			if err := appended(b, text, piece, tc.filed); !errors.Is(err, tc.failed) {
				t.Errorf("%s, by %d: append: %v, want %v", tc.name, piece, err, tc.failed)
			}
			if b.Size() != 20 || !errors.Is(b.WhyNotWhole(), tc.why) || (b.WhyNotWhole() == nil) != (tc.why == nil) {
				t.Errorf("%s, by %d: %d bytes, not whole because %v; want 20, %v", tc.name, piece, b.Size(), b.WhyNotWhole(), tc.why)
			}
			if got := string(b.Bytes()); (tc.why == nil) != (got == text) || tc.why != nil && b.Bytes() != nil {
				t.Errorf("%s, by %d: in memory is %q", tc.name, piece, got)
			}
			if tc.failed == nil && !strings.HasPrefix(text, string(b.Begin())) || len(b.Begin()) == 0 {
				t.Errorf("%s, by %d: begins with %q", tc.name, piece, b.Begin())
			}
			if tc.why != nil && !(tc.failed != nil) && taken(b.Held) != 0 {
				t.Errorf("%s, by %d: %d bytes of memory are held for nothing", tc.name, piece, taken(b.Held))
			}
			if tc.failed == nil {
				var sent strings.Builder
				if err := b.Send(&sent); err != nil || sent.String() != tc.sent {
					t.Errorf("%s, by %d: sent %q, %v; want %q", tc.name, piece, sent.String(), err, tc.sent)
				}
			}
			b.Close()
			b.Close()
			gaveAllBack(t, b, tc.name)
			if b.Size() != 20 {
				t.Errorf("%s: closed, it has %d bytes", tc.name, b.Size())
			}
		}
	}
}

func gaveAllBack(t *testing.T, b *Body, name string) {
	t.Helper()
	if taken(b.Held) != 0 || taken(b.Files) != 0 {
		t.Errorf("%s: %d bytes of memory and %d of files were not given back", name, taken(b.Held), taken(b.Files))
	}
	if left, err := os.ReadDir(b.Dir); len(left) > 0 || err != nil && !os.IsNotExist(err) {
		t.Errorf("%s: left %v, %v", name, left, err)
	}
}

// What had been written before the file failed can still be had, whole, whatever failed.
func TestR38_WhatWasWrittenBeforeTheFileFailedIsSalvaged(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tc := range []struct {
		name    string
		dir     string
		disk    int
		before  string // in pieces of 5
		last    string
		limit   int64
		salvage string
	}{
		{"no file, and nothing before", missing, 100, "", text, 10, ""},
		{"no file", missing, 100, text[:10], text[10:], 10, text[:10]},
		{"no room for what was in memory", "", 9, text[:10], text[10:], 10, text[:10]},
		{"no room for what follows", "", 12, text[:10], text[10:], 10, text[:10]},
		{"no room later", "", 17, text[:15], text[15:], 10, text[:15]},
	} {
		dir := tc.dir
		if dir == "" {
			dir = t.TempDir()
		}
		b := &Body{Limit: tc.limit, Held: room(100), Files: room(tc.disk), Dir: dir}
		if err := appended(b, tc.before, 5, true); err != nil {
			t.Errorf("%s: failed too early: %v", tc.name, err)
		}
		if err := Append(b, []byte(tc.last), true); err == nil {
			t.Errorf("%s: it did not fail", tc.name)
		}
		var got strings.Builder
		if whole := b.Salvage(&got); !whole || got.String() != tc.salvage {
			t.Errorf("%s: salvaged %q, whole %t; want %q", tc.name, got.String(), whole, tc.salvage)
		}
		if !b.Salvage(broken{}) {
			t.Errorf("%s: that the client has gone is taken for a failure of the file", tc.name)
		}
		if err := Append(b, "more", true); err != nil || b.Size() != 24 {
			t.Errorf("%s: after it has failed: %v, %d bytes", tc.name, err, b.Size())
		}
		b.Close()
		gaveAllBack(t, b, tc.name)
	}
}

// broken is a client that has gone.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("gone") }

// A file that has become shorter is not sent as a whole answer, nor salvaged as one.
func TestR38_AFileThatHasBecomeShorterIsAnError(t *testing.T) {
	t.Parallel()
	b := &Body{Limit: 5, Held: room(100), Files: room(25), Dir: t.TempDir()}
	if err := appended(b, text, 5, true); err != nil {
		t.Fatal(err)
	}
	if err := b.file.Truncate(7); err != nil {
		t.Fatal(err)
	}
	if err := b.Send(&bytes.Buffer{}); err == nil {
		t.Error("sent a file that has become shorter")
	}
	if err := b.Send(broken{}); err != nil {
		t.Errorf("that the client has gone is the error %v", err)
	}
	if err := Append(b, text, true); err == nil || b.Salvage(&bytes.Buffer{}) {
		t.Errorf("append: %v; salvaged what is not there", err)
	}
	b.Close()
	gaveAllBack(t, b, "shorter")
}

// What a body has lent is its borrower's to give back, once.
func TestR60_WhatIsLentIsGivenBackByWhoeverHasIt(t *testing.T) {
	t.Parallel()
	b := &Body{Limit: 100, Held: room(100), Files: room(100), Dir: t.TempDir()}
	if err := appended(b, text, 3, true); err != nil {
		t.Fatal(err)
	}
	all := taken(b.Held)
	lent := b.Lend()
	b.Close()
	if all < 20 || int64(lent) != all || taken(b.Held) != all || b.Lend() != 0 {
		t.Errorf("held %d, lent %d, held %d after the end", all, lent, taken(b.Held))
	}
	b.Held.Give(b.Principal, lent)
	gaveAllBack(t, b, "lent")
}

// A body that is reset is as a new one, wherever what was written before had gone.
func TestR31_ABodyThatIsResetIsAsNew(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*Body{
		"in memory":        {Limit: 100, Held: room(100), Files: room(0)},
		"in a file":        {Limit: 30, Held: room(100), Files: room(100)},
		"dropped":          {Limit: 30, Held: room(100), Files: room(0)},
		"in a lost file":   {Limit: 30, Held: room(100), Files: room(45)},
		"without a file":   {Limit: 30, Held: room(100), Files: room(100), Dir: "/nonexistent"},
		"without memory":   {Limit: 100, Held: room(30), Files: room(100)},
		"without any room": {Limit: 100, Held: room(30), Files: room(0)},
	} {
		if b.Dir == "" {
			b.Dir = t.TempDir()
		}
		appended(b, text+text+text, 15, name != "dropped") //nolint:errcheck // some do
		b.Reset()
		gaveAllBack(t, b, name)
		if b.Size() != 0 || b.WhyNotWhole() != nil || len(b.Begin()) != 0 || len(b.Bytes()) != 0 {
			t.Errorf("%s: reset, it has %d bytes, begins with %q, %v", name, b.Size(), b.Begin(), b.WhyNotWhole())
		}
		err := appended(b, text, 7, true)
		var sent strings.Builder
		b.Send(&sent) //nolint:errcheck // it is in memory
		if err != nil || string(b.Bytes()) != text || sent.String() != text || string(b.Begin()) != text {
			t.Errorf("%s: reset, it has %q, sent %q, begins with %q, %v", name, b.Bytes(), sent.String(), b.Begin(), err)
		}
		b.Close()
		gaveAllBack(t, b, name)
	}
}

// Whoever appends to what Bytes has returned changes nothing of the body.
func TestR38_BytesHaveNoRoomBehindThem(t *testing.T) {
	t.Parallel()
	b := &Body{Limit: 100, Held: room(100)}
	appended(b, "0123456789", 3, false) //nolint:errcheck // there is room
	longer := append(b.Bytes(), '!')
	appended(b, "abcdefghij", 1, false) //nolint:errcheck // there is room
	if got := string(b.Bytes()); got != text || string(longer) != "0123456789!" {
		t.Errorf("the body is %q, what was made of its beginning %q", got, longer)
	}
	if b := (&Body{}); b.Bytes() == nil {
		t.Error("an empty body is no body")
	}
}
