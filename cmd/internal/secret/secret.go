// Package secret finds the identity secret that a store is used with, and makes sure that it is the right one.
//
// A secret is a text of 16 to 4096 visible ASCII characters, and its bytes are the secret: there is no other way to
// read it, so that the same text in a file and in the environment is the same secret. A line end behind it doesn't
// count.
package secret

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/identity"
)

// Variable is the environment variable that may hold the secret.
const Variable = "SEMEL_IDENTITY_SECRET"

// ForStore returns the identity secret of a store: from the named file, if file is not empty, or from the environment
// ([Variable]); both is an error. Without either, a store in a file has its secret in another file next to it, which is
// made at the first start; a store in this process, or on a server, has none: its digests are plain SHA-256. A secret
// that is not the one the store was made with is an error that wraps [identity.ErrOtherSecret].
func ForStore(ctx context.Context, opened *stores.Opened, file string, log *slog.Logger) ([]byte, error) {
	return newSources(opened, file).forStore(ctx, log)
}

// Find is [ForStore] for tools: it makes no secret, and writes nothing into the store.
func Find(ctx context.Context, opened *stores.Opened, file string) ([]byte, error) {
	return newSources(opened, file).forTool(ctx)
}

// sources are where a secret may come from.
type sources struct {
	store  driver.Store
	file   string // named by the operator, "" if none is
	beside string // next to the store, "" for one that does not last
	lookup func(string) (string, bool)
}

func newSources(opened *stores.Opened, file string) *sources {
	s := &sources{store: opened.Store, file: file, lookup: os.LookupEnv}
	if opened.Path != "" {
		s.beside = opened.Path + ".secret"
	}
	return s
}

func (s *sources) forStore(ctx context.Context, log *slog.Logger) ([]byte, error) {
	f, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	if f.missing {
		if f.text, err = makeFile(s.beside); err != nil {
			return nil, err
		}
		f.from = s.beside
		log.Info("made an identity secret; keep a copy: without it the store can't be used", "file", s.beside)
	}
	if err := identity.Check(ctx, s.store, f.text); err != nil {
		return nil, f.explain(err)
	}
	return f.text, nil
}

func (s *sources) forTool(ctx context.Context) ([]byte, error) {
	f, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := identity.Verify(ctx, s.store, f.text); err != nil {
		return nil, f.explain(err)
	}
	return f.text, nil
}

// found is what a search came to.
type found struct {
	text    []byte // nil means none
	from    string
	missing bool // a new store, whose secret is still to be made
}

// explain adds where a secret came from that the store refuses.
func (f found) explain(err error) error {
	switch {
	case !errors.Is(err, identity.ErrOtherSecret):
		return err
	case f.from == "":
		return fmt.Errorf("there is no identity secret: %w", err)
	}
	return fmt.Errorf("the identity secret from %s: %w", f.from, err)
}

func (s *sources) find(ctx context.Context) (f found, err error) {
	text, set := s.lookup(Variable)
	switch {
	case s.file != "" && set:
		return f, fmt.Errorf("two identity secrets are given: the file %s, and %s in the environment", s.file, Variable)
	case s.file != "":
		f.from = s.file
		f.text, err = readFile(s.file)
		return f, err
	case set:
		f.from = "the environment, " + Variable
		f.text, err = parse(text, f.from)
		return f, err
	case s.beside == "":
		return f, nil
	}
	// The store is looked at before its file. Another process, at its first start, makes the file first: so a check value
	// that is seen here has its file there.
	known, plain := identity.Verify(ctx, s.store, nil)
	used := known
	if !known && plain == nil {
		if used, err = hasOperations(ctx, s.store); err != nil {
			return f, err
		}
	}
	f.text, err = readFile(s.beside)
	switch {
	case err == nil:
		f.from = s.beside
		return f, nil
	case !errors.Is(err, os.ErrNotExist):
		return f, err
	case errors.Is(plain, identity.ErrOtherSecret):
		return f, fmt.Errorf("the store was made with an identity secret, and its file %s is missing: put it back, or give the secret by %s", s.beside, Variable)
	case plain != nil:
		return f, plain
	case used && !known:
		return f, fmt.Errorf("the store has operations already, and there is no file %s with the identity secret that they were recorded with: give it by %s", s.beside, Variable)
	}
	f.missing = !known // else the store was made without a secret
	return f, nil
}

// hasOperations reports whether a store holds any. Under a new secret they would not be found again.
func hasOperations(ctx context.Context, store driver.Store) (found bool, err error) {
	lister, ok := store.(driver.Lister)
	if !ok {
		return false, nil
	}
	err = lister.List(ctx, driver.Query{Limit: 1}, func(driver.ID, driver.Record) bool {
		found = true
		return false
	})
	if err != nil {
		return false, fmt.Errorf("look for operations in the store: %w", err)
	}
	return found, nil
}
