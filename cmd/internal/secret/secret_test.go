package secret

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/identity"
	"github.com/semelhq/semel/memstore"
)

const (
	ours   = "0123456789abcdef"
	theirs = "fedcba9876543210"
)

// lasting returns a store that counts as one that lasts, next to a file in a folder of its own.
func lasting(t *testing.T) *stores.Opened {
	t.Helper()
	return &stores.Opened{Store: memstore.New(), Lasts: true, Path: filepath.Join(t.TempDir(), "semel.db")}
}

// environment returns a lookup in an environment that holds the secret given, or none.
func environment(value ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name != Variable || len(value) == 0 {
			return "", false
		}
		return value[0], true
	}
}

func write(t *testing.T, name, text string, mode fs.FileMode) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return name
}

var quiet = slog.New(slog.DiscardHandler)

func TestR15_AStoreThatLastsGetsASecretAtItsFirstStart(t *testing.T) {
	t.Parallel()
	opened := lasting(t)
	var log bytes.Buffer
	first, err := newSources(opened, "").forStore(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	file := opened.Path + ".secret"
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file's mode is %v, %v, want 0600", info.Mode(), err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != string(first)+"\n" || len(first) != 64 {
		t.Errorf("the file has %d bytes, %v; the secret has %d, want 64 and a line end", len(text), err, len(first))
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v, want the file only", left, err)
	}
	if !strings.Contains(log.String(), file) || strings.Contains(log.String(), string(first)) {
		t.Errorf("the log does not name the file, or tells the secret: %s", log.String())
	}
	again, err := newSources(opened, "").forStore(t.Context(), quiet)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("the second start has another secret, or %v", err)
	}
	if other, err := makeFile(filepath.Join(t.TempDir(), "x")); err != nil || bytes.Equal(first, other) {
		t.Errorf("another store has the same secret, or %v", err)
	}
}

// The same text is the same secret, wherever it stands.
func TestR15_AFileAndTheEnvironmentAreReadAlike(t *testing.T) {
	t.Parallel()
	for _, text := range []string{ours, ours + "\n", ours + "\r\n"} {
		opened := lasting(t)
		file := write(t, filepath.Join(t.TempDir(), "secret"), text, 0o400)
		byFile, err := newSources(opened, file).forStore(t.Context(), quiet)
		if err != nil || string(byFile) != ours {
			t.Errorf("by file: %q, %v", byFile, err)
		}
		s := newSources(opened, "")
		s.lookup = environment(text)
		byVariable, err := s.forStore(t.Context(), quiet)
		if err != nil || string(byVariable) != ours {
			t.Errorf("by variable: %q, %v", byVariable, err)
		}
		if _, err := os.Stat(opened.Path + ".secret"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a secret was made besides the one given: %v", err)
		}
	}
}

func TestR15_AStoreThatEndsWithItsProcessHasNoSecret(t *testing.T) {
	t.Parallel()
	s := newSources(&stores.Opened{Store: memstore.New()}, "")
	s.lookup = environment()
	if got, err := s.forStore(t.Context(), quiet); got != nil || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	s.lookup = environment(ours)
	if _, err := s.forStore(t.Context(), quiet); !errors.Is(err, identity.ErrOtherSecret) {
		t.Errorf("a secret where there was none: %v", err)
	}
}

func TestASecretThatCantBeReadIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct{ file, says string }{
		{at("absent"), "no such file"},
		{dir, "is a folder"},
		{write(t, at("others"), ours, 0o644), "chmod 600 " + at("others")},
		{write(t, at("world"), ours, 0o604), "mode 0604"},
		{write(t, at("group writes"), ours, 0o660), "chmod 600"},
		{write(t, at("empty"), "", 0o600), "is empty"},
		{write(t, at("line end"), "\n", 0o600), "is empty"},
		{write(t, at("short"), ours[1:], 0o600), "15 characters, want at least 16"},
		{write(t, at("binary"), ours+"\x00\xff", 0o600), "byte 17 is not a visible ASCII character"},
		{write(t, at("blank"), ours+" \n", 0o600), "byte 17 is not"},
		{write(t, at("lines"), ours+"\n\n", 0o600), "byte 17 is not"},
		{write(t, at("umlaut"), "ä"+ours, 0o600), "byte 1 is not"},
		{write(t, at("long"), strings.Repeat("x", 4097), 0o600), "more than 4096 characters"},
		{write(t, at("long file"), strings.Repeat("x", 1<<20), 0o600), "more than 4096 characters"},
		{write(t, at("endless"), strings.Repeat("x", 1<<20+1), 0o600), "more than 1048576 characters"},
	} {
		opened := lasting(t)
		got, err := newSources(opened, c.file).forStore(t.Context(), quiet)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s: %q, %v; want an error that says %q", c.file, got, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), ours[1:]) {
			t.Errorf("%s: the error tells the secret: %v", c.file, err)
		}
		if known, err := identity.Verify(t.Context(), opened.Store, nil); known || err != nil {
			t.Errorf("%s: the store has a check value: %v", c.file, err)
		}
	}
	for _, text := range []string{"", "\n", ours[1:]} {
		s := newSources(lasting(t), "")
		s.lookup = environment(text)
		if got, err := s.forStore(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), Variable) {
			t.Errorf("%q in the environment: %q, %v", text, got, err)
		}
	}
}

func TestAGroupMayReadASecret(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "secret"), ours, 0o440)
	if got, err := readFile(file); err != nil || string(got) != ours {
		t.Errorf("%q, %v", got, err)
	}
	long := strings.Repeat("x", 4096)
	file = write(t, filepath.Join(t.TempDir(), "secret"), long+"\r\n", 0o600)
	if got, err := readFile(file); err != nil || string(got) != long {
		t.Errorf("the longest: %d characters, %v", len(got), err)
	}
}

func TestTwoSecretsAreRefused(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "secret"), ours, 0o600)
	s := newSources(lasting(t), file)
	s.lookup = environment(ours)
	_, err := s.forStore(t.Context(), quiet)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), Variable) {
		t.Errorf("error %v", err)
	}
}

func TestR15_AnotherSecretIsRefused(t *testing.T) {
	t.Parallel()
	opened := lasting(t)
	s := newSources(opened, "")
	s.lookup = environment(ours)
	if _, err := s.forStore(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(t.TempDir(), "secret"), theirs, 0o600)
	_, err := newSources(opened, file).forStore(t.Context(), quiet)
	if !errors.Is(err, identity.ErrOtherSecret) || !strings.Contains(err.Error(), file) {
		t.Errorf("another in a file: %v", err)
	}
	s.lookup = environment(theirs)
	if _, err := s.forStore(t.Context(), quiet); !errors.Is(err, identity.ErrOtherSecret) || !strings.Contains(err.Error(), Variable) {
		t.Errorf("another in the environment: %v", err)
	}
	beside := write(t, opened.Path+".secret", theirs, 0o600)
	if _, err := newSources(opened, "").forStore(t.Context(), quiet); !errors.Is(err, identity.ErrOtherSecret) || !strings.Contains(err.Error(), beside) {
		t.Errorf("another next to the store: %v", err)
	}
}

// A secret that was lost is not made anew: every repeat would run again.
func TestR15_AMissingSecretIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	opened := lasting(t)
	if _, err := newSources(opened, "").forStore(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	file := opened.Path + ".secret"
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err := newSources(opened, "").forStore(t.Context(), quiet)
	if err == nil || !strings.Contains(err.Error(), "its file "+file+" is missing") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made anew: %v", err)
	}
}

// Operations that were recorded without a check value were recorded under some secret, which a new one is not.
func TestR15_AStoreInUseGetsNoNewSecret(t *testing.T) {
	t.Parallel()
	opened := lasting(t)
	_, _, err := opened.Store.Claim(t.Context(), semel.Identify(nil, semel.KindHTTP, "acme", "k"), driver.Claim{Token: driver.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSources(opened, "").forStore(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), "has operations already") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(opened.Path + ".secret"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a secret was made: %v", err)
	}
	write(t, opened.Path+".secret", ours, 0o600)
	if got, err := newSources(opened, "").forStore(t.Context(), quiet); err != nil || string(got) != ours {
		t.Errorf("the one that is given: %q, %v", got, err)
	}
}

func TestR15_AStoreMadeWithoutASecretIsUsedWithoutOne(t *testing.T) {
	t.Parallel()
	opened := lasting(t)
	if err := identity.Check(t.Context(), opened.Store, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := newSources(opened, "").forStore(t.Context(), quiet); got != nil || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestR15_FirstStartsAtOnceEndWithOneSecret(t *testing.T) {
	t.Parallel()
	opened := lasting(t)
	var wg sync.WaitGroup
	start := make(chan struct{})
	secrets := make([]string, 20)
	for i := range secrets {
		wg.Go(func() {
			<-start
			got, err := newSources(opened, "").forStore(context.Background(), quiet)
			if err != nil {
				t.Error(err)
			}
			secrets[i] = string(got)
			// The first request comes at once, while others are still starting.
			_, _, err = opened.Store.Claim(context.Background(), semel.Identify(got, semel.KindHTTP, "acme", "k"), driver.Claim{Token: driver.NewToken()})
			if err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	for _, s := range secrets {
		if s != secrets[0] || len(s) != 64 {
			t.Fatalf("secrets differ: %q and %q", s, secrets[0])
		}
	}
}

// A process that died while it made the secret has left no half of it.
func TestR15_ASecretIsThereAsAWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "semel.db.secret")
	write(t, filepath.Join(dir, ".semel.db.secret.123"), "half", 0o600)
	got, err := makeFile(name)
	if err != nil || len(got) != 64 {
		t.Fatalf("%q, %v", got, err)
	}
	if err := writeOnce(name, theirs); err != nil {
		t.Error(err)
	}
	if again, err := readFile(name); err != nil || !bytes.Equal(got, again) {
		t.Errorf("it was overwritten: %v", err)
	}
	if err := writeOnce(filepath.Join(dir, "absent", "x"), theirs); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that does not exist: %v", err)
	}
}

func TestR15_ToolsMakeNoSecretAndWriteNothing(t *testing.T) {
	t.Parallel()
	opened := lasting(t)
	got, err := newSources(opened, "").forTool(t.Context())
	if got != nil || err != nil {
		t.Errorf("of a new store: %q, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(opened.Path)); err != nil || len(left) > 0 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
	if known, err := identity.Verify(t.Context(), opened.Store, nil); known || err != nil {
		t.Errorf("the store has a check value: %v", err)
	}
	want, err := newSources(opened, "").forStore(t.Context(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := newSources(opened, "").forTool(t.Context()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("of a store in use: %q, %v", got, err)
	}
	file := write(t, filepath.Join(t.TempDir(), "secret"), theirs, 0o600)
	if _, err := newSources(opened, file).forTool(t.Context()); !errors.Is(err, identity.ErrOtherSecret) {
		t.Errorf("another secret: %v", err)
	}
}

func TestASecretOfTheEnvironmentIsFound(t *testing.T) {
	t.Setenv(Variable, ours)
	opened := lasting(t)
	if got, err := ForStore(t.Context(), opened, "", quiet); err != nil || string(got) != ours {
		t.Errorf("for the gateway: %q, %v", got, err)
	}
	if got, err := Find(t.Context(), opened, ""); err != nil || string(got) != ours {
		t.Errorf("for a tool: %q, %v", got, err)
	}
}
