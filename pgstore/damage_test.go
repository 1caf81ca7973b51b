package pgstore

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
)

// What can't be read is never taken for absent, nor run again, nor swept (R-41a, R-93).
func TestR41a_ARecordThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, row := range []struct {
		what, set string
		verbs     bool // every verb fails
	}{
		{"a later version's layout", "layout = 2", true},
		{"a damaged answer", "answer = set_byte(answer, octet_length(answer) - 1, 0)", false},
		{"a cut answer", "answer = substr(answer, 1, 5)", false},
		{"an answer of a later version", "answer = '\\x0202'::bytea || substr(answer, 3)", false},
		{"an answer that is missing in its partition", "answer = NULL, answer_day = 1", false},
	} {
		s := openStore(t, Options{})
		id, c := newID(), ask(driver.Hold)
		rec := claim(t, s, id, c)
		settle(t, s, id, rec.Owner(), done("answer"))
		other := newID()
		claim(t, s, other, ask(driver.Hold))
		exec(t, s, "UPDATE {schema}.records SET "+row.set+" WHERE id = $1", id[:])

		unreadable := func(verb string, err error) {
			t.Helper()
			if !errors.Is(err, driver.ErrUnreadable) {
				t.Errorf("%s, %s: %v", row.what, verb, err)
			}
		}
		_, err := s.Load(ctx, id)
		unreadable("load", err)
		again := c
		again.Token = driver.NewToken()
		_, owned, err := s.Claim(ctx, id, again)
		unreadable("claim", err)
		if owned {
			t.Errorf("%s: it is run again", row.what)
		}
		_, _, err = s.Settle(ctx, id, rec.Owner(), done("answer"))
		unreadable("settle", err)
		listed := 0
		err = s.List(ctx, driver.Query{}, func(got driver.ID, _ driver.Record) bool {
			listed++
			return got == other
		})
		unreadable("list", err)
		if listed != 1 || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("%s: %d records are listed, error %v", row.what, listed, err)
		}
		if !row.verbs {
			continue
		}
		_, err = s.Seize(ctx, id, driver.NewToken())
		unreadable("seize", err)
		_, err = s.Forget(ctx, id, rec.Owner())
		unreadable("forget", err)
		exec(t, s, "UPDATE {schema}.records SET expires = 1, state = 1, wrote = 0 WHERE id = $1", id[:])
		_, err = s.Extend(ctx, id, rec.Owner(), driver.Extension{})
		unreadable("extend", err)
		_, err = s.SaveStep(ctx, id, rec.Owner(), "charge", nil)
		unreadable("save step", err)
		_, err = s.Steps(ctx, id)
		unreadable("steps", err)
		if n, err := s.Sweep(ctx, 10); n != 0 || err != nil {
			t.Errorf("%s: sweep changed %d records, error %v", row.what, n, err)
		}
	}
}

func TestAnswersAreStoredExactly(t *testing.T) {
	t.Parallel()
	for _, p := range []*driver.Response{
		{},
		{Status: 204},
		{Status: 200, Body: []byte{}},
		{Status: 201, Header: http.Header{"A": {"1", "2"}, "B": nil}, Trailer: http.Header{"C": {""}}, Body: bytes.Repeat([]byte{0, 255}, 3000), Codec: "zstd"},
	} {
		b, err := encodeAnswer(p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeAnswer(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Body) == 0 {
			got.Body = p.Body
		}
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%+v became %+v", p, got)
		}
		for i := 1; i < len(b); i++ { // the first byte is the version, of which later ones are readable
			bad := bytes.Clone(b)
			bad[i] ^= 0x10
			if _, err := decodeAnswer(bad); err == nil {
				t.Errorf("byte %d of %d was changed, and nobody noticed", i, len(b))
			}
		}
		for n := range b {
			if _, err := decodeAnswer(b[:n]); err == nil {
				t.Errorf("%d of %d bytes are taken for the answer", n, len(b))
			}
		}
	}
	if b, err := encodeAnswer(nil); b != nil || err != nil {
		t.Errorf("no answer is %x, error %v", b, err)
	}
	if _, err := encodeAnswer(&driver.Response{Status: 1000}); err == nil {
		t.Error("a status of 1000 can be stored")
	}
}

// composite has a fuzz target for the rows themselves.
func TestARowOfAnotherShapeIsNoRecord(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{
		nil, {0, 0, 0, 0}, {127, 255, 255, 255}, {0, 0, 0, 2, 0, 0, 0, 17, 0, 0, 0, 1, 'x', 0, 0, 0, 17, 255, 255, 255, 255},
	} {
		if f, err := readFound(b); err == nil {
			t.Errorf("%x: %+v", b, f)
		}
	}
}

// A deleted record's fence binds, also if it was ahead of the clock: after the clock was set back, for example.
func TestFencesGrowOverDeletion(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	id := newID()
	for range 50 { // faster than the clock's milliseconds
		rec := claim(t, s, id, ask(driver.Hold))
		settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
		if forgot, err := s.Forget(ctx, id, rec.Owner()); !forgot || err != nil {
			t.Fatalf("forget: %t, %v", forgot, err)
		}
		next := claim(t, s, id, ask(driver.Hold))
		if next.Fence <= rec.Fence {
			t.Fatalf("fence %d follows %d", next.Fence, rec.Fence)
		}
		settle(t, s, id, next.Owner(), driver.Outcome{State: driver.Free})
		if forgot, err := s.Forget(ctx, id, next.Owner()); !forgot || err != nil {
			t.Fatalf("forget: %t, %v", forgot, err)
		}
	}
	ahead := time.Now().Add(time.Hour).UnixMilli()
	for what, remove := range map[string]func(by driver.Owner){
		"forget": func(by driver.Owner) {
			if forgot, err := s.Forget(ctx, id, by); !forgot || err != nil {
				t.Fatalf("forget: %t, %v", forgot, err)
			}
		},
		"sweep": func(driver.Owner) {
			exec(t, s, "UPDATE {schema}.records SET settled = 1, expires = 2")
			if n, err := s.Sweep(ctx, 10); n != 1 || err != nil {
				t.Fatalf("sweep: %d, %v", n, err)
			}
		},
	} {
		rec := claim(t, s, id, ask(driver.Hold))
		ahead += 1000
		exec(t, s, "UPDATE {schema}.records SET fence = $1", ahead)
		rec.Fence = uint64(ahead)
		settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
		remove(rec.Owner())
		next := claim(t, s, id, ask(driver.Hold))
		if next.Fence <= uint64(ahead) {
			t.Errorf("%s: fence %d follows %d", what, next.Fence, ahead)
		}
		if got := load(t, s, id); got.Fence != next.Fence {
			t.Errorf("%s: fence %d was stored for %d", what, got.Fence, next.Fence)
		}
		settle(t, s, id, next.Owner(), driver.Outcome{State: driver.Free})
		if forgot, err := s.Forget(ctx, id, next.Owner()); !forgot || err != nil {
			t.Fatalf("forget: %t, %v", forgot, err)
		}
	}
}
