package semel

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/digest"
)

// the ids are stored, and shown to clients, so they never change. The values were computed by another program
// from the definition: HMAC-SHA-256, or SHA-256 without a secret, of parts that each follow their length as a varint.
func TestR15_IdentityGolden(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		secret, bytes, public string
	}{
		{
			"secret",
			"8e0985cc1adca5973cc5c0aea3c1a100" + "3fab3a71bbcfdcfb679109dd8cc656805b0c0014be09e46efc36a06012dce5c6",
			"jgmFzBrcpZc8xcCuo8GhAD-rOnG7z9z7Z5EJ3YzGVoBbDAAUvgnkbvw2oGAS3OXG",
		},
		{
			"",
			"176b6d7bbbd258546d4520052a811232" + "57f716ce69ea3745ab7767bdaf3e23038fc12f5068833f741b7f8955459875c8",
			"F2tte7vSWFRtRSAFKoESMlf3Fs5p6jdFq3dnva8-IwOPwS9QaIM_dBt_iVVFmHXI",
		},
	} {
		id := Identify([]byte(tt.secret), KindHTTP, "acct-1", "abc")
		if got := hex.EncodeToString(id[:]); got != tt.bytes {
			t.Errorf("secret %q: id is %s, want %s", tt.secret, got, tt.bytes)
		}
		if got := id.String(); got != tt.public {
			t.Errorf("secret %q: public id is %s, want %s", tt.secret, got, tt.public)
		}
		scope := id.Scope()
		if got := hex.EncodeToString(scope[:]); got != tt.bytes[:32] {
			t.Errorf("secret %q: scope is %s, want %s", tt.secret, got, tt.bytes[:32])
		}
		if back, err := driver.ParseID(tt.public); back != id || err != nil {
			t.Errorf("secret %q: parsed back as %v, %v", tt.secret, back, err)
		}
	}
}

// whatever differs in kind, scope or key is another operation, however the parts are cut; what agrees in kind
// and scope, and only that, shares the scope's part.
func TestR10_R15_IdentityTellsKindScopeAndKeyApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 600)
	type identity struct {
		kind       Kind
		scope, key string
	}
	var all []identity
	for _, kind := range []Kind{KindHTTP, KindDo, "message", "saga", "", "httpa", "htt"} {
		for _, scope := range []string{"a", "ab", "abc", "", "A", "a\x00", "pa", long, long + "l"} {
			for _, key := range []string{"c", "bc", "", "C", "a", "c\x00", "\x01c", long, long + "l"} {
				all = append(all, identity{kind, scope, key})
			}
		}
	}
	for _, secret := range [][]byte{nil, []byte("secret")} {
		d := digest.New(secret)
		ids := map[driver.ID]identity{}
		scopes := map[driver.ScopeID]identity{}
		for _, x := range all {
			id := d.ID(string(x.kind), x.scope, x.key)
			if y, taken := ids[id]; taken {
				t.Errorf("%q and %q have the same id", x, y)
			}
			ids[id] = x
			if y, known := scopes[id.Scope()]; known && (y.kind != x.kind || y.scope != x.scope) {
				t.Errorf("%q and %q have the same scope id", x, y)
			}
			scopes[id.Scope()] = x
			if again := d.ID(string(x.kind), x.scope, x.key); again != id {
				t.Errorf("%q has another id the second time", x)
			}
		}
		if len(scopes) != 7*9 {
			t.Errorf("%d scope ids of %d kinds and scopes", len(scopes), 7*9)
		}
	}
}

// who does not know the secret can't tell a key by its id.
func TestR15_IdentityDependsOnTheSecret(t *testing.T) {
	t.Parallel()
	seen := map[driver.ID]string{}
	for _, secret := range []string{"", "a", "b", "a-longer-secret-of-thirty-two-byte"} {
		id := Identify([]byte(secret), KindHTTP, "acct-1", "abc")
		if other, taken := seen[id]; taken {
			t.Errorf("secrets %q and %q make the same id", secret, other)
		}
		seen[id] = secret
	}
}

func TestR15_IdentityHoldsNeitherScopeNorKey(t *testing.T) {
	t.Parallel()
	id := Identify(nil, KindHTTP, "acct", "sesame")
	for _, s := range []string{string(id[:]), id.String(), fmt.Sprint(id), fmt.Sprintf("%+v", id)} {
		if strings.Contains(s, "acct") || strings.Contains(s, "sesame") {
			t.Errorf("%q shows what it was made of", s)
		}
	}
}

func TestParseID_Refuses(t *testing.T) {
	t.Parallel()
	valid := Identify(nil, KindHTTP, "acct-1", "abc").String()
	for _, tt := range []struct{ text, reason string }{
		{"", "empty"},
		{valid[:63], "a character short"},
		{valid + "A", "a character long"},
		{valid[:64] + "=", "padded"},
		{"+" + valid[1:], "the other base64 alphabet"},
		{" " + valid[1:], "a space"},
		{"é" + valid[2:], "not ASCII"},
		{valid[:60] + "\r\n\r\n", "line ends at the end, which base64 passes over"},
		{valid[:20] + "\n\n\n\n" + valid[24:], "line ends within"},
		{strings.Repeat("\n", 64), "nothing but line ends"},
	} {
		if id, err := driver.ParseID(tt.text); err == nil {
			t.Errorf("%s: parsed as %v", tt.reason, id)
		} else if id != (driver.ID{}) || !strings.HasPrefix(err.Error(), "parse operation id: ") {
			t.Errorf("%s: %v, %v", tt.reason, id, err)
		}
	}
}

// A digester remembers the scope that it was asked for last: of another kind, the same name is another scope.
func TestR10_ARememberedScopeIsOfItsKind(t *testing.T) {
	t.Parallel()
	d := digest.New(nil)
	for range 2 {
		for _, kind := range []Kind{KindHTTP, KindDo, "message"} {
			if got, want := d.ID(string(kind), "acme", "key"), digest.New(nil).ID(string(kind), "acme", "key"); got != want {
				t.Errorf("%s: %s, want %s", kind, got, want)
			}
		}
	}
}

// The public id is what JSON, and whatever else takes texts, has of an ID.
func TestField14_AnIDIsItsPublicIDInTexts(t *testing.T) {
	t.Parallel()
	e := driver.AuditEntry{ID: Identify([]byte("secret"), KindHTTP, "acct-1", "abc"), Action: "release"}
	text, err := json.Marshal(e)
	if err != nil || !strings.Contains(string(text), `"ID":"`+e.ID.String()+`"`) {
		t.Errorf("marshalled as %s, %v", text, err)
	}
	var back driver.AuditEntry
	if err := json.Unmarshal(text, &back); err != nil || back != e {
		t.Errorf("unmarshalled as %+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"ID":"short"}`), &back); err == nil {
		t.Error("a text that is no id was taken for one")
	}
}
