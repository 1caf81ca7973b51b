package fingerprint

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/refusal"
)

func digestField(body string) (s256, s512 string) {
	a, b := sha256.Sum256([]byte(body)), sha512.Sum512([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(a[:]) + ":", "sha-512=:" + base64.StdEncoding.EncodeToString(b[:]) + ":"
}

func TestR25_AWrongContentDigestIsRefused(t *testing.T) {
	t.Parallel()
	const body = `{"hello": "world"}`
	s256, s512 := digestField(body)
	wrong256, wrong512 := digestField(body + "\n")
	for _, c := range []struct {
		name  string
		lines []string
		ok    bool
	}{
		{"none", nil, true},
		{"example of RFC 9530", []string{"sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"}, true},
		{"sha-512", []string{s512}, true},
		{"both", []string{s256 + ", " + s512}, true},
		{"both, two lines", []string{s256, s512}, true},
		{"wrong", []string{wrong256}, false},
		{"wrong sha-512", []string{wrong512}, false},
		{"one wrong", []string{s256 + "," + wrong512}, false},
		{"one wrong, two lines", []string{wrong256, s512}, false},
		{"the last of a name counts", []string{wrong256 + ", " + s256}, true},
		{"the last of a name counts, wrong", []string{s256 + ", " + wrong256}, false},
		{"no padding", []string{strings.TrimSuffix(s256, "=:") + ":"}, true},
		{"parameters", []string{s256 + ";a;b=1;c=\"x\""}, true},
		{"unknown algorithm", []string{"crc32c=:AAAA:, md5=:AAAA:"}, true},
		{"unknown with other values", []string{`a, b=1, c=1.5, d="s", e=tok, f=?1, g=@1, h=%"x", i=(1 "a";q=1 :YQ==:), j=()`}, true},
		{"empty", []string{""}, true},
		{"upper case", []string{strings.ToUpper(s256)}, false},
		{"no dictionary", []string{"garbage!"}, false},
		{"comma at the end", []string{s256 + ","}, false},
		{"no byte sequence", []string{"sha-256=abc"}, false},
		{"boolean", []string{"sha-256"}, false},
		{"list", []string{"sha-256=(" + s256[8:] + ")"}, false},
		{"empty digest", []string{"sha-256=::"}, false},
		{"too short", []string{"sha-256=:X48E:"}, false},
		{"not base64", []string{"sha-256=:X4_8:"}, false},
		{"hexadecimal", []string{"sha-256=:" + strings.Repeat("5f", 32) + ":"}, false},
		{"unclosed", []string{strings.TrimSuffix(s256, ":")}, false},
		{"unclosed list", []string{"a=(1 2"}, false},
		{"list without spaces", []string{"a=(1,2)"}, false},
		{"bad parameter", []string{s256 + ";A"}, false},
		{"quoted", []string{`"` + s256 + `"`}, false},
	} {
		for _, memory := range []int64{0, 4} {
			s := sketch{body: body, memory: memory}
			_, b := s.request(t)
			err := CheckContentDigest(http.Header{"Content-Digest": c.lines}, b)
			if (err == nil) != c.ok || !c.ok && !errors.Is(err, refusal.DigestMismatch) {
				t.Errorf("%s, memory %d: error %v, want none: %v", c.name, memory, err, c.ok)
			}
			b.Close()
		}
	}
}

func TestR25_TheDigestIsOfTheBytesAsSent(t *testing.T) {
	t.Parallel()
	const plain = `{"a":1}`
	sent := gzippedBody(t, 9, plain)
	_, b := sketch{body: sent, header: http.Header{"Content-Encoding": {"gzip"}}}.request(t)
	ofSent, _ := digestField(sent)
	if err := CheckContentDigest(http.Header{"Content-Digest": {ofSent}}, b); err != nil {
		t.Errorf("digest of the bytes as sent: %v", err)
	}
	ofPlain, _ := digestField(plain)
	if err := CheckContentDigest(http.Header{"Content-Digest": {ofPlain}}, b); !errors.Is(err, refusal.DigestMismatch) {
		t.Errorf("digest of the decoded bytes: error %v", err)
	}
}

func TestR25_AnUnreadableBodyIsNoMismatch(t *testing.T) {
	t.Parallel()
	_, b := sketch{body: "12345678", memory: 4}.request(t)
	b.Close()
	s256, _ := digestField("12345678")
	if err := CheckContentDigest(http.Header{"Content-Digest": {s256}}, b); err == nil || errors.Is(err, refusal.DigestMismatch) {
		t.Errorf("error %v, want one of reading", err)
	}
}

// FuzzContentDigest: whatever else the field says, it passes only if a digest of the body passes with it, and no wrong
// one does.
func FuzzContentDigest(f *testing.F) {
	for _, field := range []string{"", "a=1", "sha-256=:AAAA:", `a=("x" 1);b`, "sha-512", "a=:YQ:", `a=%"%c3%a9"`, " ,", "*=?0"} {
		f.Add(field, []byte("body"))
	}
	f.Fuzz(func(t *testing.T, field string, body []byte) {
		b := &requestbody.Body{Data: body, N: int64(len(body))}
		err := CheckContentDigest(http.Header{"Content-Digest": {field}}, b)
		if err != nil && !errors.Is(err, refusal.DigestMismatch) {
			t.Fatalf("%q: error %v", field, err)
		}
		right, _ := digestField(string(body))
		wrong, _ := digestField(string(body) + "x")
		with := CheckContentDigest(http.Header{"Content-Digest": {right, field}}, b)
		if strings.Trim(field, " \t") != "" && (err == nil) != (with == nil) {
			t.Fatalf("%q: error %v alone, %v after the right digest", field, err, with)
		}
		if err := CheckContentDigest(http.Header{"Content-Digest": {field, wrong}}, b); !errors.Is(err, refusal.DigestMismatch) {
			t.Fatalf("%q: a wrong digest passes after it: %v", field, err)
		}
	})
}
