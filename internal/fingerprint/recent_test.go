package fingerprint

import (
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/digest"
)

// What is remembered is recognised by its canonical digest, which no request has.
func TestOnlyAByteEqualRepeatIsSparedItsCanonicalForm(t *testing.T) {
	t.Parallel()
	d := digest.New([]byte("secret"))
	asked := jsonBody(`{"amount":5,"note":"a"}`)
	key := driver.ID{16: 7, 17: 8, 18: 9}
	marked := [16]byte{1, 2, 3}
	otherKey := key
	otherKey[18]++
	for _, c := range []struct {
		reason string
		id     driver.ID
		s      sketch
		p      Policy
		spared bool
	}{
		{"the same bytes", key, asked, Policy{}, true},
		{"the same bytes, decoded", key, sketch{contentType: asked.contentType, body: gzippedBody(t, 1, asked.body), header: map[string][]string{"Content-Encoding": {"gzip"}}}, Policy{}, true},
		{"headers that do not count", key, sketch{contentType: asked.contentType, body: asked.body, header: map[string][]string{"Traceparent": {"00-1"}}}, Policy{}, true},
		{"another operation", otherKey, asked, Policy{}, false},
		{"another order", key, jsonBody(`{"note":"a","amount":5}`), Policy{}, false},
		{"another amount", key, jsonBody(`{"amount":6,"note":"a"}`), Policy{}, false},
		{"another path", key, sketch{contentType: asked.contentType, body: asked.body, target: "/refunds"}, Policy{}, false},
		{"a condition", key, sketch{contentType: asked.contentType, body: asked.body, header: map[string][]string{"If-Match": {`"1"`}}}, Policy{}, false},
		{"a field that is left out now", key, asked, Policy{Exclude: []string{"/note"}}, false},
		{"a header that counts now", key, asked, Policy{Headers: []string{"X-Version"}}, false},
		{"a host that counts now", key, asked, Policy{Host: true}, false},
		{"every byte counts now", key, asked, Policy{Exact: true}, false},
		{"large bodies are compared byte by byte now", key, sketch{contentType: asked.contentType, body: asked.body, memory: 1000}, Policy{}, false},
		{"a body in a file", key, sketch{contentType: asked.contentType, body: asked.body, memory: 8}, Policy{}, false},
	} {
		var recent Recent
		known := asked.fingerprint(t, Policy{})
		known.Canonical = marked
		recent.add(key, &known)
		f, err := New(c.p)
		if err != nil {
			t.Fatal(err)
		}
		r, b := c.s.request(t)
		got, err := f.Of(d, &recent, c.id, r, b)
		if err != nil || (got.Canonical == marked) != c.spared {
			t.Errorf("%s: spared its canonical form: %v, error %v; want %v", c.reason, got.Canonical == marked, err, c.spared)
		}
		b.Close()
	}
}

func TestAnUnrememberedFingerprintTakesThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	var recent Recent
	a, b := driver.ID{16: 1}, driver.ID{16: 1, 40: 2}
	b[18] = 1 // the same place, another operation
	for i, id := range []driver.ID{a, b, a} {
		fp := driver.Fingerprint{Raw: [16]byte{byte(i)}, Canonical: [16]byte{9, byte(i)}}
		recent.add(id, &fp)
		got := driver.Fingerprint{Raw: fp.Raw}
		if !recent.complete(id, &got) || got != fp {
			t.Errorf("%d: remembered %v, want %v", i, got, fp)
		}
		for _, other := range []driver.ID{a, b} {
			if other != id && recent.complete(other, &got) {
				t.Errorf("%d: one operation's fingerprint is found under another", i)
			}
		}
	}
}
