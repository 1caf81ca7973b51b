package storedrequest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/keyring"
)

func ringOf(t testing.TB, keys ...keyring.Key) *keyring.Ring {
	t.Helper()
	k, err := keyring.New(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var (
	firstKey    = keyring.Key{ID: "a", Key: bytes.Repeat([]byte{1}, 32)}
	sealedToken = driver.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	sealedID    = digest.New(nil).ID("http", "alice", "k")
)

func someRequest() *Request {
	return &Request{
		Scope: "alice", Key: "k\x00POST /p", KeyHeader: "Idempotency-Key", KeyValue: `"k"`, Method: "POST", Target: "/p?a=%20b",
		Host: "shop", Header: http.Header{"Content-Type": {"text/plain"}, "Accept": {"a", "b"}}, Body: []byte("body"),
	}
}

// A stored request is opened by later versions too, as long as operations last.
func TestR61_TheFormOfAStoredRequest(t *testing.T) {
	t.Parallel()
	const text = "01" + "05616c696365" + "096b00504f5354202f70" + "0f4964656d706f74656e63792d4b6579" + "03226b22" + "04504f5354" +
		"092f703f613d25323062" + "0473686f70" + "02" + "06416363657074" + "02" + "0161" + "0162" +
		"0c436f6e74656e742d54797065" + "01" + "0a746578742f706c61696e" + "626f6479"
	want := someRequest()
	if got := hex.EncodeToString(want.append(nil)); got != text {
		t.Errorf("stored as %s", got)
	}
	// Of key "a", which is 32 times 1, the token 1 to 16, and a nonce of zeros.
	golden, err := hex.DecodeString(goldenEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Open(ringOf(t, keyring.Key{ID: "b", Key: bytes.Repeat([]byte{2}, 32)}, firstKey), sealedID, &driver.Record{Sealed: golden})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("opened as %+v, %v", got, err)
	}
}

func someCall() *Request {
	return &Request{Kind: "saga", Operation: "saga a", Scope: "a", Key: "k", Body: []byte("body")}
}

// A stored call of Do is opened by later versions too.
func TestR85_TheFormOfAStoredCall(t *testing.T) {
	t.Parallel()
	k, want := ringOf(t, firstKey), someCall()
	if got := hex.EncodeToString(want.append(nil)); got != "02"+"0473616761"+"06736167612061"+"0161"+"016b"+"626f6479" {
		t.Errorf("stored as %s", got)
	}
	got, err := Open(k, sealedID, &driver.Record{Sealed: want.Seal(k, sealedID)})
	if err != nil || got.Kind != "saga" || got.Operation != "saga a" || got.Scope != "a" || got.Key != "k" || string(got.Body) != "body" {
		t.Errorf("opened as %+v, %v", got, err)
	}
	nameless := k.SealField(field, sealedID, sealedToken, []byte{versionCall, 0, 0, 0, 0})
	if got, err := Open(k, sealedID, &driver.Record{Sealed: nameless}); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("without a kind: %+v, %v", got, err)
	}
}

const goldenEnvelope = "0101610102030405060708090a0b0c0d0e0f1000000000000000000000000090620000ce872c151a735d878a1a89efe0991be51b114b6a" +
	"e52f88b9dd98683ab40e19c40bd7191ce4b5287b18a3f82addef6ae078a97e37d114f7e42af3482b3e77e211363e4c7dc13d74099ee3a0" +
	"417f36d2d02e285fc4e086b29b477422ad4aa6ffaa8d45d2def9effc77167d2930e32829"

func TestR61_AStoredRequestIsBoundToItsRecord(t *testing.T) {
	t.Parallel()
	k := ringOf(t, firstKey)
	text := someRequest().append(nil)
	sealed := k.SealField(field, sealedID, sealedToken, text)
	changed := func(at int) []byte {
		b := bytes.Clone(sealed)
		b[at] ^= 1
		return b
	}
	for name, c := range map[string]struct {
		id     driver.ID
		ring   *keyring.Ring
		sealed []byte
		why    string
	}{
		"another record":    {digest.New(nil).ID("http", "alice", "other"), k, sealed, "authentication failed"},
		"another field":     {sealedID, k, k.SealField("step x", sealedID, sealedToken, text), "authentication failed"},
		"another token":     {sealedID, k, changed(3), "authentication failed"},
		"another nonce":     {sealedID, k, changed(3 + len(driver.Token{})), "authentication failed"},
		"another text":      {sealedID, k, changed(len(sealed) - 1), "authentication failed"},
		"another key id":    {sealedID, k, changed(2), `key "` + "`" + `", which is not in the keyring`},
		"without a keyring": {sealedID, nil, sealed, `key "a", which is not in the keyring`},
		"in the clear":      {sealedID, k, (*keyring.Ring)(nil).SealField(field, sealedID, sealedToken, text), "not encrypted"},
		"nothing":           {sealedID, k, nil, "empty"},
		"another kind":      {sealedID, k, []byte{7}, "envelope of kind 7"},
		"cut off":           {sealedID, k, sealed[:10], "10 encrypted bytes"},
		"without a nonce":   {sealedID, k, sealed[:22], "encrypted bytes"},
		"another version":   {sealedID, k, k.SealField(field, sealedID, sealedToken, []byte{9}), "form is unknown"},
		"an empty text":     {sealedID, k, k.SealField(field, sealedID, sealedToken, nil), "form is unknown"},
		"half a text":       {sealedID, k, k.SealField(field, sealedID, sealedToken, text[:8]), "at byte"},
	} {
		if got, err := Open(c.ring, c.id, &driver.Record{Sealed: c.sealed}); !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, c.why)
		}
	}
	if again := k.SealField(field, sealedID, sealedToken, text); bytes.Equal(again, sealed) {
		t.Error("the same request is encrypted to the same bytes")
	}
}

func TestStoredRequestsAreMadeAgain(t *testing.T) {
	t.Parallel()
	s := someRequest()
	r, err := s.HTTP()
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != "body" || r.ContentLength != 4 || r.Method != "POST" || r.URL.Path != "/p" || r.URL.RawQuery != "a=%20b" ||
		r.Host != "shop" || r.RequestURI != "/p?a=%20b" {
		t.Errorf("made %+v with %q, %v", r, body, err)
	}
	if r.Header.Get("Idempotency-Key") != `"k"` || len(r.Header["Accept"]) != 2 || len(s.Header) != 2 {
		t.Errorf("made with %v, of %v", r.Header, s.Header)
	}
	for name, spoil := range map[string]func(*Request){
		"a bad target": func(s *Request) { s.Target = "\x7f" },
		"no key":       func(s *Request) { s.KeyValue = "" },
		"no header":    func(s *Request) { s.KeyHeader = "" },
	} {
		bad := someRequest()
		spoil(bad)
		if r, err := bad.HTTP(); err == nil {
			t.Errorf("%s: made %+v", name, r)
		}
	}
	bare := someRequest()
	bare.Header = nil
	if r, err := bare.HTTP(); err != nil || len(r.Header) != 1 {
		t.Errorf("without headers: %v", err)
	}
}

func FuzzStoredRequest(f *testing.F) {
	k := ringOf(f, firstKey)
	f.Add(someRequest().append(nil))
	f.Add(someCall().append(nil))
	f.Add([]byte{versionHTTP})
	f.Add([]byte{versionCall, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Open(k, sealedID, &driver.Record{Sealed: k.SealField(field, sealedID, sealedToken, text)})
		if err != nil {
			if !errors.Is(err, driver.ErrUnreadable) {
				t.Errorf("%v is not ErrUnreadable", err)
			}
			return
		}
		if again := s.append(nil); !bytes.Equal(again, text) {
			t.Errorf("%q was read as %+v, which is written as %q", text, s, again)
		}
	})
}
