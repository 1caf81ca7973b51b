package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/semelhq/semel/cmd/internal/broken"
)

// serveBug serves the payment service behind a layer with a bug until ctx ends. All that is known is in files that are
// synced, so that a process that was killed can be started again on them.
func (c Config) serveBug(ctx context.Context) error {
	bug, err := broken.Find(c.Bug)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	s := &stage{dir: c.Dir}
	if err = s.folder(); err == nil {
		err = c.layer(ctx, s, bug)
	}
	if err = errors.Join(err, s.close()); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// folder makes the stage's folder; one that nobody has named is removed in the end.
func (s *stage) folder() (err error) {
	if s.dir != "" {
		return os.MkdirAll(s.dir, 0o700)
	}
	if s.dir, err = os.MkdirTemp("", "semel-demo-*"); err == nil {
		s.closing(func() error { return os.RemoveAll(s.dir) })
	}
	return err
}

// layer serves on a stage. It has the address before it opens the files: a process that was killed may still write to
// them as long as it has the address.
func (c Config) layer(ctx context.Context, s *stage, bug broken.Bug) error {
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	s.closing(func() error {
		listener.Close() // the server has closed it, mostly
		return nil
	})
	if s.ledger, err = openLedger(filepath.Join(s.dir, "ledger.jsonl")); err != nil {
		return err
	}
	s.closing(s.ledger.close)
	layer, err := broken.New(bug.Name, s.dir, (&service{ledger: s.ledger}).handler())
	if err != nil {
		return err
	}
	s.closing(layer.Close)
	c.introduce(bug, "http://"+listener.Addr().String(), s.ledger.path)
	return serveUntil(ctx, listener, layer)
}

// listen listens on the address that was asked for; or on the preferred one if that is free, else on any.
func (c Config) listen(ctx context.Context) (net.Listener, error) {
	if c.Listen != "" {
		return listenOn(ctx, c.Listen)
	}
	l, err := net.Listen("tcp", preferredPort)
	if errors.Is(err, syscall.EADDRINUSE) {
		return net.Listen("tcp", freePort)
	}
	return l, err
}

// listenOn listens on an address that may be held for a moment longer, by a process that was killed, or by a
// connection.
func listenOn(ctx context.Context, address string) (net.Listener, error) {
	for tries := 0; ; tries++ {
		l, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) || tries == addressTries || ctx.Err() != nil {
			return l, err
		}
		pause(ctx, addressPause)
	}
}

const (
	addressTries = 200
	addressPause = 20 * time.Millisecond
)

// serveUntil serves a handler until ctx ends, and then a little longer for what is under way. What runs longer than
// that is cut off, as in a crash.
func serveUntil(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// killing are the checks that kill or stop the process that they look at.
var killing = []string{"crash-after-answer", "crash-before-effect", "crash-after-effect", "pause"}

// introduce says what is served, and how to find what is wrong with it.
func (c Config) introduce(bug broken.Bug, address, ledger string) {
	s := screen{out: c.Out, color: c.Color}
	s.printf("%s  payments behind an idempotency layer with one bug\n\n", s.bold("semel demo --bug "+bug.Name))
	s.printf("  the layer  %s\n", bug.What)
	s.printf("  address    %s\n", address)
	s.printf("  ledger     %s\n", ledger)
	s.printf("             one line a charge, written by the service\n\n")
	find := "go run ./verify/cmd/semel-verify --scenario examples/verify/broken.yaml"
	if address != "http://"+preferredPort {
		find += " \\\n      --target " + address
	}
	flags, says := "--only "+bug.Caught, "Without --only every check looks."
	switch {
	case bug.Caught == "":
		flags, says = "--skip "+strings.Join(killing, ","), "No check finds anything."
	case bug.Caught == "load":
		flags, says = "--only repeat --rate 50", "Many operations are needed to find it."
	case slices.Contains(killing, bug.Caught):
		says = "The check kills or stops this process. The scenario says how to start it for that."
	}
	s.printf("%s, in another terminal; Ctrl-C here ends it.\n\n", s.bold("Find it"))
	s.printf("  %s \\\n      %s\n\n%s\n", find, flags, says)
}

// PrintBugs prints the table of bugs.
func PrintBugs(out io.Writer) error {
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "BUG\tTHE LAYER\tFOUND BY\n")
	for _, b := range broken.Bugs() {
		fmt.Fprintf(tab, "%s\t%s\t%s\n", b.Name, b.What, b.Caught)
	}
	if err := tab.Flush(); err != nil {
		return fmt.Errorf("print bugs: %w", err)
	}
	return nil
}
