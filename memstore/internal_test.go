package memstore

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
)

// An entry is a record in another form: a field that is added to records must be added here.
func TestAnEntryKeepsEveryField(t *testing.T) {
	t.Parallel()
	zero := driver.Record{Now: 7}
	full := filled(t)
	full.Now = 7
	sh := &newStore(Options{}).shards[0]
	at := sh.insert(&driver.ID{})
	for _, want := range []driver.Record{full, zero, full} {
		sh.write(at, &want, pack(nil, &want))
		if got := sh.record(at, 7); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

// A pointer in an entry would be followed by the collector, for each record, again and again.
func TestAnEntryHoldsNoPointer(t *testing.T) {
	t.Parallel()
	var pointers func(of reflect.Type) bool
	pointers = func(of reflect.Type) bool {
		switch of.Kind() {
		case reflect.Array:
			return pointers(of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				if pointers(of.Field(i).Type) {
					return true
				}
			}
			return false
		}
		return of.Kind() >= reflect.Chan || of.Kind() == reflect.Uintptr
	}
	if of := reflect.TypeFor[entry](); pointers(of) || of.Size() > entrySize {
		t.Errorf("an entry of %d bytes, of which %d are counted, holds pointers: %t", of.Size(), entrySize, pointers(of))
	}
}

// filled returns a record of which no field is zero.
func filled(t *testing.T) driver.Record {
	var rec driver.Record
	v := reflect.ValueOf(&rec).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			fill(t, v.Field(i), i+1)
			if v.Field(i).IsZero() {
				t.Fatalf("%s is not filled", f.Name)
			}
		}
	}
	return rec
}

func fill(t *testing.T, v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.String:
		v.SetString(string(rune('a' + n)))
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), n+i)
		}
	case reflect.Slice:
		v.SetBytes([]byte{byte(n)})
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n+i)
		}
	case reflect.Int:
		v.SetInt(int64(200 + n))
	case reflect.Map:
		v.Set(reflect.ValueOf(http.Header{"A": {"b", ""}, "None": nil, "Z": {string(rune('a' + n))}}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	default:
		t.Fatalf("no rule for a field of kind %s", v.Kind())
	}
}

// sound checks what must hold of a store between verbs.
func (s *Store) sound(t *testing.T) {
	t.Helper()
	var all use
	of := map[driver.ScopeID]use{}
	for i := range s.shards {
		sh := &s.shards[i]
		queued, live, stepped := 0, 0, 0
		for k, at := range sh.index {
			if at == 0 {
				t.Errorf("an empty chain is left")
			}
			for ; at != 0; at = sh.entries.At(at).next {
				e, rec := sh.entries.At(at), sh.record(at, 0)
				one := use{1, entrySize + slab.Size(len(pack(nil, &rec)))}
				for name, result := range sh.steps[at] {
					one.bytes += stepWeight(name, result)
				}
				if scope := e.id.Scope(); !e.id.Reserved() {
					if of[scope] == (use{}) {
						of[scope] = use{0, principalSize}
						all.bytes += principalSize
					}
					of[scope] = of[scope].plus(one)
				}
				all = all.plus(one)
				if rec.Steps != (len(sh.steps[at]) > 0) {
					t.Errorf("a record that is %s says %t of its steps", rec.State, rec.Steps)
				} else if rec.Steps {
					stepped++
				}
				if indexKey(&e.id) != k || s.shard(e.id) != sh {
					t.Errorf("a record is in the wrong place")
				}
				if isLive := lives(&rec); isLive != (e.live > 0) || isLive && sh.live[e.live-1] != at {
					t.Errorf("a record that is %s has the place %d among the live ones", rec.State, e.live)
				} else if isLive {
					live++
				}
				when := rec.Expires()
				if (when == never) != (e.pos == 0) {
					t.Errorf("a record that is %s expires at %d, and its place in the queue is %d", rec.State, when, e.pos)
					continue
				}
				if e.pos == 0 {
					continue
				}
				queued++
				if got := sh.queue[e.pos-1]; got != (appointment{when, at}) {
					t.Errorf("the queue has another record or time at the place of this one")
				}
			}
		}
		if stepped != len(sh.steps) {
			t.Errorf("%d records have steps, and there are those of %d", stepped, len(sh.steps))
		}
		if live != len(sh.live) {
			t.Errorf("%d records are live, %d are noted", live, len(sh.live))
		}
		if queued != len(sh.queue) {
			t.Errorf("%d records expire, and %d are in the queue", queued, len(sh.queue))
		}
		for i := range sh.queue {
			if i > 0 && sh.queue[i].when < sh.queue[(i-1)/2].when {
				t.Errorf("the queue is out of order at %d", i)
			}
		}
	}
	if !maps.Equal(s.room.of, of) {
		t.Errorf("of principals %v is counted, there is %v", s.room.of, of)
	}
	if s.room.all != all {
		t.Errorf("counted %+v, there is %+v", s.room.all, all)
	}
}

// Random verbs do to the store what the transitions do to a map.
func TestTheStoreDoesWhatTheTransitionsSay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := time.UnixMicro(1_900_000_000_000_000)
		s := newStore(Options{Clock: func() time.Time { return now }})
		model := map[driver.ID]driver.Record{}
		steps := map[driver.ID]map[string]string{}
		ids := make([]driver.ID, 24)
		for i := range ids {
			ids[i][0], ids[i][24], ids[i][47] = byte(i%4), byte(i%3), byte(i) // few principals and shards, shared index keys
		}
		tokens := make([]driver.Token, 4)
		for i := range tokens {
			tokens[i][0] = byte(i + 1)
		}
		answers := []*driver.Response{nil, {Status: 200, Body: []byte("answer"), Header: map[string][]string{"A": {"b", "c"}}}}
		compare := func(id driver.ID) {
			t.Helper()
			want, at := model[id], driver.TimeOf(now)
			got, err := s.Load(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			want.Now = at
			for _, when := range []driver.Time{want.Expires(), at} { // swept, or reclaimed by a claim, as soon as it might be or later
				swept, expired := want.Swept(when)
				swept.Now = at
				if expired && when <= at && reflect.DeepEqual(got, swept) {
					want, model[id] = swept, swept
					break
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: Load: %+v\nwant %+v", seed, got, want)
			}
			if !want.Steps {
				delete(steps, id)
			}
			saved, err := s.Steps(t.Context(), id)
			if err != nil || len(saved) != len(steps[id]) {
				t.Fatalf("seed %d: %d steps, error %v; want %d", seed, len(saved), err, len(steps[id]))
			}
			for name, result := range steps[id] {
				if got, ok := saved[name]; !ok || string(got) != result {
					t.Fatalf("seed %d: step %q is %q, %t; want %q", seed, name, got, ok, result)
				}
			}
		}
		for turn := range 400 {
			now = now.Add(time.Duration(r.IntN(400)) * time.Millisecond)
			id, at := ids[r.IntN(len(ids))], driver.TimeOf(now)
			compare(id)
			old := model[id]
			by := old.Owner()
			if r.IntN(4) == 0 {
				by = driver.Owner{Fence: old.Fence - uint64(r.IntN(2)), Token: tokens[r.IntN(len(tokens))], Above: r.IntN(2) == 0}
			}
			switch r.IntN(11) {
			case 0, 1, 2:
				c := driver.Claim{
					Fingerprint: driver.Fingerprint{Raw: [16]byte{byte(r.IntN(20) / 19)}, Canonical: [16]byte{byte(r.IntN(2))}},
					Token:       tokens[r.IntN(len(tokens))],
					Lease:       time.Duration(r.IntN(3000)) * time.Millisecond,
					Retention:   time.Duration(1+r.IntN(5000)) * time.Millisecond,
					Tombstone:   time.Duration(r.IntN(3)) * time.Second,
					OnLost:      driver.LostPolicy(r.IntN(2)),
					Operation:   []string{"POST /a", "POST /b"}[r.IntN(2)],
					Correlation: []string{"", "c1", "longer correlation"}[r.IntN(3)],
					Sealed:      [][]byte{nil, []byte("sealed")}[r.IntN(2)],
				}
				if old.State == driver.Absent {
					old.Fence = s.shard(id).floor
				}
				want, wantOwned := old.Claim(at, c)
				got, owned, err := s.Claim(t.Context(), id, c)
				if err != nil || owned != wantOwned || !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: Claim: %+v, %t, %v\nwant %+v, %t", seed, got, owned, err, want, wantOwned)
				}
				if owned {
					model[id] = want
				}
			case 3:
				x := driver.Extension{Lease: time.Duration(r.IntN(3000)) * time.Millisecond, Begun: r.IntN(4) == 0}
				want, wantOwned := old.Extend(at, by, x)
				owned, err := s.Extend(t.Context(), id, by, x)
				if err != nil || owned != wantOwned {
					t.Fatalf("seed %d: Extend: %t, %v; want %t", seed, owned, err, wantOwned)
				}
				if owned {
					model[id] = want
				}
			case 4, 5:
				o := driver.Outcome{
					State:    driver.State(1 + r.IntN(4)),
					Response: answers[r.IntN(len(answers))],
					Error:    []string{"", "why"}[r.IntN(2)],
					Owed:     r.IntN(4) == 0,
				}
				want, wantOwned := old.Settle(at, by, o)
				got, owned, err := s.Settle(t.Context(), id, by, o)
				if err != nil || owned != wantOwned || !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: Settle: %+v, %t, %v\nwant %+v, %t", seed, got, owned, err, want, wantOwned)
				}
				if owned {
					model[id] = want
				}
			case 6:
				want, seized := old.Seize(at, tokens[0])
				got, err := s.Seize(t.Context(), id, tokens[0])
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: Seize: %+v, %v\nwant %+v", seed, got, err, want)
				}
				if seized {
					model[id] = want
				}
			case 7:
				want := old.Forgettable(at, by)
				forgot, err := s.Forget(t.Context(), id, by)
				if err != nil || forgot != want {
					t.Fatalf("seed %d: Forget: %t, %v; want %t", seed, forgot, err, want)
				}
				if forgot {
					delete(model, id)
				}
			case 8, 9:
				name, result := []string{"charge", "ship"}[r.IntN(2)], []string{"", "7", "longer result"}[r.IntN(3)]
				want, wantOwned := old.SaveStep(at, by)
				owned, err := s.SaveStep(t.Context(), id, by, name, []byte(result))
				if err != nil || owned != wantOwned {
					t.Fatalf("seed %d: SaveStep: %t, %v; want %t", seed, owned, err, wantOwned)
				}
				if !owned {
					break
				}
				model[id] = want
				if steps[id] == nil {
					steps[id] = map[string]string{}
				}
				if _, had := steps[id][name]; !had {
					steps[id][name] = result
				}
			case 10:
				if _, err := s.Sweep(t.Context(), r.IntN(4)); err != nil {
					t.Fatal(err)
				}
			}
			checked := []driver.ID{id}
			if turn%10 == 0 {
				checked = ids
			}
			for _, id := range checked {
				compare(id)
			}
			if turn%10 == 0 {
				s.sound(t)
			}
			if t.Failed() {
				t.Fatalf("seed %d, turn %d", seed, turn)
			}
		}
		now = now.Add(100 * time.Hour)
		if _, err := s.Sweep(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		s.sound(t)
	}
}
