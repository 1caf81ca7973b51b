package fingerprint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/semelhq/semel/internal/digest"
)

// crlf writes line breaks as multipart bodies have them.
func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

func uploadOf(boundary, body string) sketch {
	return sketch{
		contentType: "multipart/form-data; boundary=" + boundary,
		body:        crlf(strings.ReplaceAll(body, "--B", "--"+boundary)),
	}
}

const twoParts = `--B
Content-Disposition: form-data; name="note"

hello
--B
Content-Disposition: form-data; name="file"; filename="a.txt"
Content-Type: text/plain

line one
line two

--B--
`

func TestR21_Case22_TheMultipartBoundaryDoesNotCount(t *testing.T) {
	t.Parallel()
	one := uploadOf("first", twoParts)
	want := one.fingerprint(t, Policy{})
	for _, c := range []struct {
		name  string
		other sketch
		same  bool
	}{
		{"boundary", uploadOf("----second-1", twoParts), true},
		{"no line break at the end", uploadOf("x", strings.TrimSuffix(twoParts, "\n")), true},
		{"order of a part's fields", uploadOf("x", strings.Replace(twoParts,
			"Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\nContent-Type: text/plain",
			"content-type:text/plain\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\" ", 1)), true},
		{"name", uploadOf("x", strings.Replace(twoParts, `"note"`, `"memo"`, 1)), false},
		{"file name", uploadOf("x", strings.Replace(twoParts, "a.txt", "b.txt", 1)), false},
		{"type", uploadOf("x", strings.Replace(twoParts, "text/plain", "text/html", 1)), false},
		{"content", uploadOf("x", strings.Replace(twoParts, "hello", "hallo", 1)), false},
		{"other fields", uploadOf("x", strings.Replace(twoParts, "Content-Type", "Content-Transfer-Encoding: base64\nContent-Type", 1)), false},
		{"subtype", sketch{contentType: "multipart/mixed; boundary=first", body: one.body}, false},
		{"order of parts", uploadOf("x", "--B\nA: 1\n\n2\n--B\nA: 1\n\n1\n--B--"), false},
	} {
		got := c.other.fingerprint(t, Policy{})
		if got.Raw == want.Raw || got.Equal(want) != c.same {
			t.Errorf("%s: raw equal %v, equal %v, want false, %v", c.name, got.Raw == want.Raw, got.Equal(want), c.same)
		}
	}
	if p := (Policy{Exact: true}); one.fingerprint(t, p).Equal(uploadOf("x", twoParts).fingerprint(t, p)) {
		t.Error("byte-exact mode equates boundaries")
	}
}

func TestR21_PartsCanNotBeForged(t *testing.T) {
	t.Parallel()
	bodies := []string{
		"--B\n\na\n--B\n\nb\n--B--",
		"--B\n\na\n--C\n\nb\n--B--",
		"--B\n\n\n--B\n\nab\n--B--",
		"--B\n\nab\n--B\n\n\n--B--",
		"--B\n\nab\n--B--",
		"--B\nA: b\n\nab\n--B--",
		"--B\nA:\n\nab\n--B--",
		"--B\n\nA: b\n\nab\n--B--",
		"--B\nA: 1\nA: 2\n\nab\n--B--",
		"--B\nA: 2\nA: 1\n\nab\n--B--",
		"--B--",
	}
	seen := map[[16]byte]string{}
	for _, body := range bodies {
		fp := uploadOf("B", body).fingerprint(t, Policy{})
		if other, ok := seen[fp.Canonical]; ok {
			t.Errorf("%q and %q: the same fingerprint", body, other)
		}
		seen[fp.Canonical] = body
		if again := uploadOf("another", body).fingerprint(t, Policy{}); !strings.Contains(body, "--C") && !again.Equal(fp) {
			t.Errorf("%q: another fingerprint under another boundary", body)
		}
	}
}

func TestR21_MultipartThatReadersDifferOnIsRaw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body string }{
		{"empty", ""},
		{"no delimiter", "hello"},
		{"text before", "preamble\r\n--B\r\n\r\na\r\n--B--"},
		{"line break before", "\r\n--B\r\n\r\na\r\n--B--"},
		{"text after", "--B\r\n\r\na\r\n--B--\r\nepilogue"},
		{"no end", "--B\r\n\r\na\r\n"},
		{"ends in a delimiter", "--B\r\n\r\na\r\n--B"},
		{"ends in half of the last one", "--B\r\n\r\na\r\n--B-"},
		{"delimiter longer than the boundary", "--B\r\n\r\na\r\n--Bx\r\n\r\n--B--"},
		{"space after the delimiter", "--B \r\n\r\na\r\n--B--"},
		{"bare line feeds", "--B\n\na\n--B--"},
		{"delimiter within a line", "--B\r\n\r\na--B--\r\n--B--"},
		{"delimiter after a bare line feed", "--B\r\n\r\na\n--B--\r\n--B--"},
		{"content without the line break of the delimiter", "--B\r\n\r\n--B--"},
		{"folded field", "--B\r\nA: 1\r\n 2\r\n\r\na\r\n--B--"},
		{"field without a colon", "--B\r\nA\r\n\r\na\r\n--B--"},
		{"field with a space before the colon", "--B\r\nA : 1\r\n\r\na\r\n--B--"},
		{"carriage return in a field", "--B\r\nA: 1\rB: 2\r\n\r\na\r\n--B--"},
		{"no content", "--B\r\nA: 1\r\n--B--"},
		{"header too large", "--B\r\n" + strings.Repeat("A: "+strings.Repeat("a", 1000)+"\r\n", 9) + "\r\na\r\n--B--"},
		{"line too long", "--B\r\nA: " + strings.Repeat("a", maxPartHeader) + "\r\n\r\na\r\n--B--"},
	} {
		if _, ok, err := multipartDigest(digest.New(nil), strings.NewReader(c.body), "B"); ok || err != nil {
			t.Errorf("%s: read as multipart (error %v)", c.name, err)
		}
		a := sketch{contentType: "multipart/form-data; boundary=B", body: c.body}
		b := sketch{contentType: "multipart/form-data; boundary=C", body: c.body}
		x, y := a.fingerprint(t, Policy{}), b.fingerprint(t, Policy{})
		if x.Canonical == y.Canonical {
			t.Errorf("%s: the boundary does not count, though a lenient reader may find parts", c.name)
		}
		if !x.Equal(a.fingerprint(t, Policy{})) {
			t.Errorf("%s: does not equal itself", c.name)
		}
	}
	long := strings.Repeat("b", maxBoundary+1)
	if _, ok, err := multipartDigest(digest.New(nil), strings.NewReader("--"+long+"--"), long); ok || err != nil {
		t.Errorf("a boundary of %d characters is accepted (error %v)", len(long), err)
	}
}

func TestR24_MultipartIsReadAsAStream(t *testing.T) {
	t.Parallel()
	// Delimiters fall on every place of the reader's buffer.
	for shift := range 100 {
		content := strings.Repeat("y", maxPartHeader-50+shift)
		body := "--B\r\nA: 1\r\n\r\n" + content + "\r\n--B\r\n\r\n" + content + "\r\n--\r\n--B--\r\n"
		want, ok, err := multipartDigest(digest.New(nil), strings.NewReader(body), "B")
		if !ok || err != nil {
			t.Fatalf("shift %d: not multipart (error %v)", shift, err)
		}
		got, ok, err := multipartDigest(digest.New(nil), iotest.HalfReader(strings.NewReader(body)), "B")
		if !ok || err != nil || got != want {
			t.Fatalf("shift %d: read in pieces it has another digest (error %v)", shift, err)
		}
	}
	broken := errors.New("disk on fire")
	for _, read := range []string{"", "-", "--B", "--B\r\n", "--B\r\nA: 1", "--B\r\n\r\nabc", "--B\r\n\r\nabc\r\n--B", "--B--"} {
		src := io.MultiReader(strings.NewReader(read), iotest.ErrReader(broken))
		if _, ok, err := multipartDigest(digest.New(nil), src, "B"); ok || !errors.Is(err, broken) {
			t.Errorf("after %q: multipart %v, error %v; want the reader's error", read, ok, err)
		}
	}
}

// FuzzMultipart compares with mime/multipart: the parts that it reads, written again with another boundary, have the
// same digest.
func FuzzMultipart(f *testing.F) {
	for _, body := range []string{twoParts, "--B--", "--B\n\n\n--B--\n", "--B\nA: 1\na: 2\n\n\n\n--B--", "x--B\n\n--B--"} {
		f.Add([]byte(crlf(body)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := digest.New(nil)
		sum, ok, err := multipartDigest(d, bytes.NewReader(body), "B")
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		boundary := fmt.Sprintf("%x", sha256.Sum256(body))
		var other bytes.Buffer
		for r := multipart.NewReader(bytes.NewReader(body), "B"); ; {
			part, err := r.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				return // it is stricter here
			}
			fmt.Fprintf(&other, "--%s\r\n", boundary)
			for _, name := range slices.Sorted(maps.Keys(part.Header)) {
				for _, value := range part.Header[name] {
					fmt.Fprintf(&other, "%s: %s\r\n", name, value)
				}
			}
			other.WriteString("\r\n")
			if _, err := io.Copy(&other, part); err != nil {
				t.Fatalf("%q: read part: %v", body, err)
			}
			other.WriteString("\r\n")
		}
		fmt.Fprintf(&other, "--%s--", boundary)
		if again, ok, err := multipartDigest(d, &other, boundary); !ok || err != nil || again != sum {
			t.Fatalf("%q and %q: different digests (multipart %v, error %v)", body, other.Bytes(), ok, err)
		}
	})
}
