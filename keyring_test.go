package semel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func encryptionKey(id string, fill byte) keyring.Key {
	return keyring.Key{ID: id, Key: bytes.Repeat([]byte{fill}, 32)}
}

func keyringOf(t testing.TB, keys ...keyring.Key) *keyring.Ring {
	t.Helper()
	k, err := keyring.New(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestR61_StoredAnswersAreEncrypted(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	var runs int
	pay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.Header().Set("Location", "/payments/secret-17")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "secret body")
	})
	serve := func(k *keyring.Ring) func(key string) (int, string, string) {
		g, _ := newGuardWith(t, store, semel.Options{Encryption: k})
		return func(key string) (int, string, string) {
			w := answer(g.Wrap(pay), post(key, `{}`))
			return w.Code, w.Body.String(), w.Header().Get("Location")
		}
	}
	first, second := encryptionKey("2026", 1), encryptionKey("2027", 2)
	clear, old := serve(nil), serve(keyringOf(t, first))
	rotated, without := serve(keyringOf(t, second, first).AllowPlain()), serve(keyringOf(t, second))

	clear("clear")
	old("old")
	for _, key := range []string{"clear", "old"} {
		if status, body, location := rotated(key); status != 201 || body != "secret body" || location != "/payments/secret-17" {
			t.Errorf("%s, after a rotation: replayed %d %q %q", key, status, body, location)
		}
	}
	rec, err := store.Load(t.Context(), keyed("old"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := rec.AppendBinary(nil)
	if err != nil || bytes.Contains(data, []byte("secret")) || rec.Response.Status != 201 {
		t.Errorf("stored %d %q, %v", rec.Response.Status, data, err)
	}
	for name, serve := range map[string]func(string) (int, string, string){"of a key that is gone": without, "without a keyring": clear} {
		if status, body, _ := serve("old"); status != 409 || !strings.Contains(body, string(refusal.ReplayUnavailable)) {
			t.Errorf("%s: replayed %d %q", name, status, body)
		}
	}
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
}

// What was encrypted for one record can't be read as another's, nor after a change.
func TestR61_AnEncryptedAnswerIsBoundToItsRecord(t *testing.T) {
	t.Parallel()
	k := keyringOf(t, encryptionKey("a", 1))
	id, token := keyed("k"), driver.NewToken()
	want := &driver.Response{Status: 201, Header: http.Header{"Location": {"/1"}}, Body: []byte("answer"), Codec: "gzip"}
	sealed := k.Seal(id, token, want)
	open := func(id driver.ID, token driver.Token, r driver.Response) (*driver.Response, error) {
		return k.Open(id, &driver.Record{Token: token, Response: &r})
	}
	if got, err := open(id, token, *sealed); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("opened as %+v, %v", got, err)
	}
	if again := k.Seal(id, token, sealed); again != sealed {
		t.Error("it is encrypted twice")
	}
	if other := k.Seal(id, token, want); bytes.Equal(other.Body, sealed.Body) {
		t.Error("the same answer is encrypted to the same bytes")
	}
	changed := *sealed
	changed.Body = bytes.Clone(sealed.Body)
	changed.Body[len(changed.Body)/2] ^= 1
	short := *sealed
	short.Body = sealed.Body[:5]
	for name, try := range map[string]func() (*driver.Response, error){
		"another record": func() (*driver.Response, error) { return open(keyed("other"), token, *sealed) },
		"another run":    func() (*driver.Response, error) { return open(id, driver.NewToken(), *sealed) },
		"changed":        func() (*driver.Response, error) { return open(id, token, changed) },
		"cut off":        func() (*driver.Response, error) { return open(id, token, short) },
		"without the key": func() (*driver.Response, error) {
			return (*keyring.Ring)(nil).Open(id, &driver.Record{Token: token, Response: sealed})
		},
	} {
		if got, err := try(); !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := k.Open(id, &driver.Record{}); got != nil || err != nil {
		t.Errorf("no answer: %+v, %v", got, err)
	}
}

// Whoever writes into the store can't have an answer of his own replayed.
func TestAttack08_R61_WhatIsNotEncryptedIsRefusedWhereThereIsAKeyring(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	key := semel.Key{Scope: "alice", Operation: "pay", Value: "do"}
	runs := 0
	var seen *events
	ask := func(k *keyring.Ring) (*httptest.ResponseRecorder, string, error) {
		var g *semel.Guard
		g, seen = newGuardWith(t, store, semel.Options{Encryption: k})
		w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusCreated)
		})), post("k", `{}`))
		got, err := semel.Do(t.Context(), g, key, semel.Bytes("x"), func(context.Context) (string, error) {
			runs++
			return "forged", nil
		})
		return w, got, err
	}
	if w, got, err := ask(nil); w.Code != 201 || got != "forged" || err != nil {
		t.Fatalf("written as %d, %q, %v", w.Code, got, err)
	}
	required := keyringOf(t, encryptionKey("a", 1))
	w, got, err := ask(required)
	if w.Code != 409 || !strings.Contains(w.Body.String(), string(refusal.ReplayUnavailable)) || w.Header().Get("Location") != "" {
		t.Errorf("replayed %d %q at %q", w.Code, w.Body, w.Header().Get("Location"))
	}
	if got != "" || !errors.Is(err, refusal.ReplayUnavailable) {
		t.Errorf("Do: %q, %v", got, err)
	}
	if n := seen.count(event.Unreadable); n != 2 {
		t.Errorf("told %d times, want 2", n)
	}
	w, got, err = ask(required.AllowPlain())
	if w.Code != 201 || got != "forged" || err != nil {
		t.Errorf("allowed: %d, %q, %v", w.Code, got, err)
	}
	if n := seen.count(event.PlainStored); n != 2 {
		t.Errorf("allowed, and told %d times, want 2", n)
	}
	if _, _, err := ask(nil); err != nil || seen.count(event.PlainStored) != 0 {
		t.Errorf("without a keyring: %v, told %d times", err, seen.count(event.PlainStored))
	}
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
	if (*keyring.Ring)(nil).AllowPlain() != nil {
		t.Error("no keyring has become one")
	}
}

func TestR61_ResultsOfDoAndAnswersInTransactions(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	g, _ := newGuardWith(t, s, semel.Options{Encryption: keyringOf(t, encryptionKey("a", 1))})
	for range 2 {
		got, err := semel.Do(t.Context(), g, semel.Key{Scope: "alice", Operation: "pay", Value: "do"}, semel.Bytes("x"), func(context.Context) (string, error) { return "secret", nil })
		if got != "secret" || err != nil {
			t.Errorf("Do: %q, %v", got, err)
		}
		w := answer(g.Wrap(s.working(paying, nil)), post("tx", `{}`))
		if w.Code != 201 || w.Body.String() != "paid" {
			t.Errorf("in a transaction: answered %d %q", w.Code, w.Body)
		}
	}
	for rec := range records(t, s) {
		if !strings.HasPrefix(rec.Response.Codec, "aes-256-gcm:") {
			t.Errorf("stored with codec %q", rec.Response.Codec)
		}
	}
	s.wantEffects("paid")
}

// records gives all records of a store.
func records(t *testing.T, s *transactor) func(func(driver.Record) bool) {
	return func(yield func(driver.Record) bool) {
		n := 0
		err := s.Store.(driver.Lister).List(t.Context(), driver.Query{}, func(_ driver.ID, rec driver.Record) bool {
			n++
			return yield(rec)
		})
		if err != nil || n != 2 {
			t.Errorf("%d records, %v", n, err)
		}
	}
}

func TestKeyringsThatAreWrong(t *testing.T) {
	t.Parallel()
	for want, keys := range map[string][]keyring.Key{
		"it has no key":              nil,
		`key "a" is there twice`:     {encryptionKey("a", 1), encryptionKey("a", 2)},
		`key "a" has 31 bytes`:       {{ID: "a", Key: make([]byte, 31)}},
		"key 2: its id must be 1 to": {encryptionKey("a", 1), encryptionKey("", 2)},
		"key 1: its id must be":      {encryptionKey("two words", 1)},
	} {
		if _, err := keyring.New(keys...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
