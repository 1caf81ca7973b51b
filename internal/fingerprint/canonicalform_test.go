package fingerprint

import (
	"math/rand/v2"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// formPairs returns the canonical form of a query or form, and false if there is none.
func formPairs(read func(*canonicalizer) bool) (pairs [][2]string, ok bool) {
	c := &canonicalizer{}
	if !read(c) {
		return nil, false
	}
	pairs = [][2]string{}
	for _, p := range c.pairs {
		pairs = append(pairs, [2]string{string(c.buf[p.start:p.name]), string(c.buf[p.name:p.end])})
	}
	return pairs, true
}

func formOf(s string) ([][2]string, bool) {
	return formPairs(func(c *canonicalizer) bool { return c.form([]byte(s)) })
}

func queryOf(s string) ([][2]string, bool) {
	return formPairs(func(c *canonicalizer) bool { return c.query(s) })
}

func TestR21_TheCanonicalFormOfForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src         string
		form, query [][2]string
	}{
		{"", [][2]string{}, [][2]string{}},
		{"b=2&a=1", [][2]string{{"a", "1"}, {"b", "2"}}, [][2]string{{"a", "a=1"}, {"b", "b=2"}}},
		{"b=&a=%31+", [][2]string{{"a", "1 "}, {"b", ""}}, [][2]string{{"a", "a=%31+"}, {"b", "b="}}},
		{"b&a=%31+", nil, [][2]string{{"a", "a=%31+"}, {"b", "b"}}},
		{"b=1&B=2&a=3", [][2]string{{"a", "3"}, {"b", "1"}, {"B", "2"}}, [][2]string{{"a", "a=3"}, {"b", "b=1"}, {"B", "B=2"}}},
		{"_=1&B=2&a=3&b[x]=4", [][2]string{{"a", "3"}, {"B", "2"}, {"b[x]", "4"}, {"_", "1"}}, [][2]string{{"a", "a=3"}, {"B", "B=2"}, {"b[x]", "b[x]=4"}, {"_", "_=1"}}},
		{"%C3%A9=1&%C3%89=2&K=3&%E2%84%AA=4&a=5", [][2]string{{"a", "5"}, {"K", "3"}, {"\u212a", "4"}, {"é", "1"}, {"É", "2"}}, [][2]string{{"a", "a=5"}, {"K", "K=3"}, {"\u212a", "%E2%84%AA=4"}, {"é", "%C3%A9=1"}, {"É", "%C3%89=2"}}},
		{"a=1=2&&", [][2]string{{"a", "1=2"}}, [][2]string{{"", ""}, {"", ""}, {"a", "a=1=2"}}},
		{"=1&%26=%26", [][2]string{{"", "1"}, {"&", "&"}}, [][2]string{{"", "=1"}, {"&", "%26=%26"}}},
		{"a=%", nil, nil},
		{"a=%4", nil, nil},
		{"a=%4g", nil, nil},
		{"%zz=1", nil, nil},
		{"a=1;b=2", nil, nil},
		{"a=1 2", nil, nil},
		{"a=\x00", nil, nil},
		{"a=é", nil, nil},
		{"a=1\n", nil, nil},
		{`{"q":"1+1=2"}`, nil, nil},
		{"<q>1+1=2</q>", nil, nil},
		{"a[b]=!$'()*,:@/?-._~", [][2]string{{"a[b]", "!$'()*,:@/?-._~"}}, [][2]string{{"a[b]", "a[b]=!$'()*,:@/?-._~"}}},
		{strings.Repeat("a&", maxFormPairs), nil, nil},
	} {
		if got, ok := formOf(c.src); !reflect.DeepEqual(got, c.form) || ok != (c.form != nil) {
			t.Errorf("form %.60q: pairs %q, want %q", c.src, got, c.form)
		}
		if got, ok := queryOf(c.src); !reflect.DeepEqual(got, c.query) || ok != (c.query != nil) {
			t.Errorf("query %.60q: pairs %q, want %q", c.src, got, c.query)
		}
	}
}

// FuzzForm compares with net/url: the canonical form has the same values, so that equal forms are of equal requests,
// and names may change places. What no form holds, and JSON least of all, has none.
func FuzzForm(f *testing.F) {
	for _, src := range []string{"a=1&b=2&a=3", "a[x]=1&a[y]=2&b", "%61=+%2B&&=", "a=%zz", "a;b", "&", "a=\xff&%ff=1", "a=1&b", `{"q":"1+1=2"}`, "[1,2]=", "a= &b=\n", "b=1&B=2", "%c3%a9=1&%C3%89=2&k=1&%e2%84%aa=2"} {
		f.Add(src, uint64(1))
	}
	f.Fuzz(func(t *testing.T, src string, seed uint64) {
		values, err := url.ParseQuery(src)
		form, formOK := formOf(src)
		query, queryOK := queryOf(src)
		if strings.Count(src, "&") >= maxFormPairs {
			return
		}
		escaped := !strings.ContainsFunc(src, func(r rune) bool {
			return r <= ' ' || r > '~' || strings.ContainsRune("\"#;<>\\^`{|}", r)
		})
		whole := !slices.ContainsFunc(strings.Split(src, "&"), func(p string) bool { return p != "" && !strings.Contains(p, "=") })
		if want := err == nil && escaped; formOK != (want && whole) || queryOK != want {
			t.Fatalf("%q: canonical as form %v, as query %v, want %v, %v (%v)", src, formOK, queryOK, want && whole, want, err)
		}
		if !queryOK {
			return
		}
		got := url.Values{}
		for _, p := range form {
			got.Add(p[0], p[1])
		}
		if formOK && !reflect.DeepEqual(got, values) {
			t.Fatalf("%q: values %q, want %q", src, got, values)
		}

		other := interleave(strings.Split(src, "&"), rand.New(rand.NewPCG(seed, 0)))
		if again, ok := formOf(other); ok != formOK || !reflect.DeepEqual(form, again) {
			t.Fatalf("forms %q and %q: pairs %q and %q", src, other, form, again)
		}
		if again, ok := queryOf(other); !ok || !reflect.DeepEqual(query, again) {
			t.Fatalf("queries %q and %q: pairs %q and %q", src, other, query, again)
		}
		for _, p := range query {
			if name, _, _ := strings.Cut(p[1], "="); unescaped(name) != p[0] || !strings.Contains(src, p[1]) {
				t.Fatalf("query %q: pair %q was not sent", src, p)
			}
		}
	})
}

func unescaped(s string) string {
	s, err := url.QueryUnescape(s)
	if err != nil {
		panic(err)
	}
	return s
}

// interleave moves pairs, but not past others of the same root.
func interleave(pairs []string, rng *rand.Rand) string {
	queues := map[string][]string{}
	var turns []string
	for _, p := range pairs {
		name, _, _ := strings.Cut(p, "=")
		root, _, _ := strings.Cut(fold(unescaped(name)), "[")
		queues[root] = append(queues[root], p)
		turns = append(turns, root)
	}
	rng.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	var out []string
	for _, root := range turns {
		out, queues[root] = append(out, queues[root][0]), queues[root][1:]
	}
	return strings.Join(out, "&")
}
