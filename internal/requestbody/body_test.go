package requestbody

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/semelhq/semel/refusal"
)

// endlessBody is a body without end.
type endlessBody struct{ read int64 }

func (e *endlessBody) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

func bodyAgain(t *testing.T, b *Body) string {
	t.Helper()
	r := b.Open()
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read body again: %v", err)
	}
	return string(got)
}

func TestR24_ABodyAboveTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	const limit = 100
	for _, c := range []struct {
		name string
		size int
		o    Options
		ok   bool
	}{
		{"at the limit", limit, Options{Limit: limit}, true},
		{"above the limit", limit + 1, Options{Limit: limit}, false},
		{"at the limit, spooled", limit, Options{Limit: limit, Memory: 10}, true},
		{"above the limit, spooled", limit + 1, Options{Limit: limit, Memory: 10}, false},
		{"at the default", 1 << 20, Options{}, true},
		{"above the default", 1<<20 + 1, Options{}, false},
		{"claimed above the limit", 1, Options{Limit: limit, Length: limit + 1}, false},
		{"claimed at the limit", limit, Options{Limit: limit, Length: limit}, true},
		{"claimed too small", limit, Options{Limit: limit, Length: 1}, true},
		{"empty", 0, Options{Limit: limit}, true},
	} {
		dir := t.TempDir()
		c.o.Dir = dir
		sent := strings.Repeat("x", c.size)
		b, err := Read(iotest.OneByteReader(strings.NewReader(sent)), c.o)
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, refusal.BodyTooLarge) {
			t.Errorf("%s: error %v, want none: %v", c.name, err, c.ok)
		}
		if err == nil {
			if got := bodyAgain(t, b); got != sent || b.Size() != int64(c.size) {
				t.Errorf("%s: %d bytes of %d came back, size %d", c.name, len(got), c.size, b.Size())
			}
			b.Close()
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: %s is left", c.name, left[0].Name())
		}
	}
	if b, err := Read(nil, Options{}); err != nil || b.Size() != 0 || bodyAgain(t, b) != "" {
		t.Errorf("no body: error %v", err)
	}
}

func TestR24_MemoryIsBoundedByWhatIsRead(t *testing.T) {
	t.Parallel()
	b, err := Read(strings.NewReader("ten bytes."), Options{Limit: 1 << 40, Length: 1 << 39})
	if err != nil {
		t.Fatal(err)
	}
	if cap(b.Data) > 32<<10 {
		t.Errorf("%d bytes of memory for 10, on the word of Content-Length", cap(b.Data))
	}
	for _, o := range []Options{{Limit: 1 << 16}, {Limit: 1 << 16, Memory: 1 << 10, Dir: t.TempDir()}} {
		src := &endlessBody{}
		if _, err := Read(src, o); !errors.Is(err, refusal.BodyTooLarge) || src.read > 1<<16+1 {
			t.Errorf("endless body: error %v after %d bytes", err, src.read)
		}
	}
}

func TestR24_ACompressedBombIsRefused(t *testing.T) {
	t.Parallel()
	const limit = 1 << 18
	at, above := gzipped(t, 9, strings.Repeat("\x00", limit)), gzipped(t, 9, strings.Repeat("\x00", 16*limit))
	for _, memory := range []int64{0, 1 << 12, limit / 2} {
		o := Options{Limit: limit, Memory: memory, Dir: t.TempDir(), Coding: []string{"gzip"}}
		if b, err := Read(strings.NewReader(at), o); err != nil || b.PlainSize != limit {
			t.Errorf("memory %d: decoded at the limit: error %v", memory, err)
		}
		if _, err := Read(strings.NewReader(above), o); !errors.Is(err, refusal.BodyTooLarge) {
			t.Errorf("memory %d: decoded above the limit: error %v", memory, err)
		}
		b := &Body{Data: []byte(above), N: int64(len(above)), coding: "gzip"}
		if _, err := b.inflate(&Options{Limit: limit, Memory: max(memory, 1<<12)}); !errors.Is(err, refusal.BodyTooLarge) || b.Plain != nil {
			t.Errorf("memory %d: error %v, %d bytes of a bomb are kept", memory, err, len(b.Plain))
		}
	}
}

func TestR24_AboveTheThresholdTheBodyIsInAFileOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sent := strings.Repeat("0123456789", 1000)
	b, err := Read(strings.NewReader(sent), Options{Memory: 1000, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if b.file == nil || b.Data != nil || b.Plain != nil {
		t.Fatal("the body is in memory")
	}
	info, err := b.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || info.Size() != int64(len(sent)) {
		t.Errorf("file of mode %v and %d bytes, want 0600 and %d", info.Mode().Perm(), info.Size(), len(sent))
	}
	for range 2 {
		if bodyAgain(t, b) != sent {
			t.Error("another body came back")
		}
	}
	var decoded bytes.Buffer
	if err := b.Stream(&decoded); err != nil || decoded.String() != sent {
		t.Errorf("another body is hashed (error %v)", err)
	}
	if err := b.file.Truncate(10); err != nil {
		t.Fatal(err)
	}
	if err := b.Stream(io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("hashing a shortened file: error %v", err)
	}
	if _, err := io.ReadAll(b.Open()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading a shortened file: error %v", err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%s is left", left[0].Name())
	}
	if _, err := Read(strings.NewReader(sent), Options{Memory: 10, Dir: dir + "/none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: error %v", err)
	}
}

func TestR29_AfterCloseReadersSeeNothing(t *testing.T) {
	t.Parallel()
	for _, memory := range []int64{0, 10} {
		sent := strings.Repeat("x", 1<<16)
		b, err := Read(strings.NewReader(sent), Options{Memory: memory, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		one, two := b.Open(), b.Open()
		buf := make([]byte, 100)
		if n, err := io.ReadFull(one, buf); n != 100 || err != nil {
			t.Fatalf("read: %d, %v", n, err)
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := one.Read(buf); n != 0 || err != http.ErrBodyReadAfterClose {
			t.Errorf("closed reader: %d, %v", n, err)
		}
		// A handler that leaks a goroutine reads while the body goes.
		leaked := make(chan error)
		started := make(chan struct{})
		go func() {
			r := b.Open()
			_, err := io.ReadFull(r, make([]byte, 1))
			close(started)
			for err == nil || err == io.EOF {
				if _, err = r.Read(make([]byte, 1)); err == io.EOF {
					r = b.Open()
				}
			}
			leaked <- err
		}()
		<-started
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-leaked; err != http.ErrBodyReadAfterClose {
			t.Errorf("leaked reader: %v", err)
		}
		if n, err := two.Read(buf); n != 0 || err != http.ErrBodyReadAfterClose {
			t.Errorf("reader of a closed body: %d, %v", n, err)
		}
		if n, err := b.Open().Read(buf); n != 0 || err != http.ErrBodyReadAfterClose {
			t.Errorf("reader opened after the close: %d, %v", n, err)
		}
	}
}

func TestR19_TheHandlerGetsTheBytesAsSent(t *testing.T) {
	t.Parallel()
	plain := strings.Repeat("plain ", 1000)
	for _, memory := range []int64{0, 10, 1000} {
		for _, sent := range []string{gzipped(t, 1, plain), gzipped(t, 9, plain), "not gzip"} {
			b, err := Read(strings.NewReader(sent), Options{Memory: memory, Dir: t.TempDir(), Coding: []string{"gzip"}})
			if err != nil {
				t.Fatal(err)
			}
			if bodyAgain(t, b) != sent || b.Size() != int64(len(sent)) {
				t.Errorf("memory %d: another body came back", memory)
			}
			want := plain
			if sent == "not gzip" {
				want = sent
			}
			var decoded bytes.Buffer
			if err := b.Stream(&decoded); err != nil || decoded.String() != want {
				t.Errorf("memory %d: decoded %.20q, %v", memory, decoded.String(), err)
			}
			b.Close()
		}
	}
}

func TestR24_ErrorsOfReadingAreToldApart(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	for _, memory := range []int64{0, 2} {
		o := Options{Memory: memory, Dir: t.TempDir()}
		src := io.MultiReader(strings.NewReader("abcd"), iotest.ErrReader(broken))
		if _, err := Read(src, o); !errors.Is(err, broken) || errors.Is(err, refusal.BodyTooLarge) {
			t.Errorf("memory %d: error %v, want the client's", memory, err)
		}
		limited := http.MaxBytesReader(httptest.NewRecorder(), io.NopCloser(strings.NewReader("abcdef")), 4)
		if _, err := Read(limited, o); !errors.Is(err, refusal.BodyTooLarge) {
			t.Errorf("memory %d: error %v, want ErrBodyTooLarge", memory, err)
		}
	}
}

func gzipped(t testing.TB, level int, members ...string) string {
	t.Helper()
	var out bytes.Buffer
	for _, m := range members {
		w, err := gzip.NewWriterLevel(&out, level)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, m)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}
