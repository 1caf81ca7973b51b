// Package demo shows what the gateway does: a small payment service and the gateway in front of it, both on loopback,
// and clients that do to them what happens in production. Every scene is judged by the service's own ledger, a file.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Config says how the demo runs.
type Config struct {
	// Once plays the scenes and returns, instead of serving until the context ends.
	Once bool
	// Listen is the gateway's address. Defaults to 127.0.0.1:8080 if that is free, else, and with Once, to a free port.
	Listen string
	// Out is where the scenes are printed; Color says that it is a terminal.
	Out   io.Writer
	Color bool
	// Self is this program's own executable, for the gateways that are killed and the operator's commands. Without it the
	// scenes that need it are left out.
	Self string
	// Bug, if set, serves the payment service behind a layer with a bug, instead of playing scenes. See [broken.Bugs].
	Bug string
	// Dir is where the ledger and the journal of that layer are kept, over restarts. Defaults to a folder that is removed
	// at the end.
	Dir string
	// Front, if set, stands in the gateway's place, so that a test can see the scenes fail with a gateway that is broken
	// or isn't there.
	Front func(gateway, service *url.URL) http.Handler

	only []int // the numbers of the scenes to play; nil means all
}

// ErrFailed means that a step did not come out right.
var ErrFailed = errors.New("not every step came out right")

// Run plays the scenes and prints them, or serves a bug. It returns an error that wraps ErrFailed and names the scenes
// if one did not come out right.
func (c Config) Run(ctx context.Context) error {
	if c.Bug != "" {
		return c.serveBug(ctx)
	}
	rows, err := c.run(ctx)
	return errors.Join(failure(rows), err)
}

// run returns what came of the scenes that were played.
func (c Config) run(ctx context.Context) (rows []row, err error) {
	dir, err := os.MkdirTemp("", "semel-demo-*")
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	s := &stage{cfg: c, screen: screen{out: c.Out, color: c.Color}, dir: dir}
	defer func() {
		err = errors.Join(err, s.close())
		if failure(rows) != nil && ctx.Err() == nil {
			s.printf("The ledger and the gateway's log stay in %s\n", dir)
		} else {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	s.opening()
	for i := range scenes {
		if ctx.Err() != nil {
			return rows, fmt.Errorf("demo: interrupted: %w", context.Cause(ctx))
		}
		if c.only != nil && !slices.Contains(c.only, i+1) || scenes[i].alone && c.Self == "" {
			continue
		}
		rows = append(rows, s.play(ctx, i+1, &scenes[i]))
	}
	s.table(rows)
	if !c.Once {
		s.invitation()
		<-ctx.Done()
		s.printf("\n")
	}
	return rows, nil
}

func failure(rows []row) error {
	var failed []string
	for _, r := range rows {
		if !r.ok {
			failed = append(failed, fmt.Sprintf("%d (%s)", r.number, r.title))
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("demo: %w: scene %s", ErrFailed, strings.Join(failed, ", "))
}

func (s *stage) opening() {
	s.printf("%s  a payment service behind semel gateway, both on this machine\n\n", s.bold("semel demo"))
	s.printf("  gateway   %s   protects what clients send, by account and key\n", s.front)
	s.printf("  service   %s   charges cards, and knows nothing of keys\n", s.service.url)
	s.printf("  ledger    %s\n", s.ledger.path)
	s.printf("            one line a charge, written by the service: the judge of every scene\n")
}

func (s *stage) invitation() {
	s.printf("\n%s, in another terminal; Ctrl-C here ends it.\n\n", s.bold("Your turn"))
	s.printf("  curl -i %s/payments \\\n", s.front)
	s.printf("       -H 'X-Account: acme' -H 'Idempotency-Key: my-first' -H 'Content-Type: application/json' \\\n")
	s.printf("       -d '{\"order\":\"mine\",\"amount\":1200,\"currency\":\"EUR\"}'\n\n")
	s.printf("  Once more               the same answer, marked Idempotent-Replayed\n")
	s.printf("  With another amount     422, nothing charged\n")
	s.printf("  As X-Account: globex    another principal, another payment\n")
	s.printf("  With \"takes\":\"5s\" in the body and a new key, from two terminals at once: 409, one charge\n\n")
	s.printf("  cat %s\n", s.ledger.path)
	s.printf("  cat %s\n", filepath.Join(s.dir, logName))
	s.printf("  curl http://%s/readyz\n", s.main.AdminAddr())
}
