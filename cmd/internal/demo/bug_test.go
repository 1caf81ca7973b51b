package demo

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel/cmd/internal/broken"
)

// A bugProcess is a demo of a bug in a process of its own.
type bugProcess struct {
	cmd  *exec.Cmd
	base string
	out  *output
}

var targeted = regexp.MustCompile(`--target (http://[\d.:]+)`)

func startBug(t *testing.T, listen, dir, bug string) *bugProcess {
	t.Helper()
	p := &bugProcess{exec.Command(built(), "demo", "--bug", bug, "--listen", listen, "--dir", dir), "", &output{}}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill() //nolint:errcheck // it may have ended
		p.cmd.Wait()         //nolint:errcheck // as above
	})
	err := until(t.Context(), func() bool {
		if told := targeted.FindStringSubmatch(p.out.String()); told != nil {
			p.base = told[1]
		}
		return p.base != "" && status(t.Context(), p.base+"/payments/count") == http.StatusOK
	})
	if err != nil {
		t.Fatalf("the demo is not there: %v\n%s", err, p.out)
	}
	return p
}

func (p *bugProcess) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

func TestAKilledDemoOfABugGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bug     string
		charges string
	}{
		{"none", "{\"count\":2}\n"},
		{"free-on-restart", "{\"count\":3}\n"},
	} {
		dir := t.TempDir()
		p := startBug(t, freePort, dir, c.bug)
		paid, lost := payFor("paid", "paid"), payFor("lost", "lost", answersAfter(5*time.Second))
		first := paid.via(p.base).send(t.Context())
		answered := make(chan reply, 1)
		go func() { answered <- lost.via(p.base).send(t.Context()) }()
		count := func() string { return receive(http.Get(p.base + "/payments/count")).body }
		if err := until(t.Context(), func() bool { return count() == "{\"count\":2}\n" }); err != nil {
			t.Fatal(err)
		}
		p.kill(t) // and not waited for: the address is free soon
		p = startBug(t, strings.TrimPrefix(p.base, "http://"), dir, c.bug)
		if r := <-answered; r.err == nil {
			t.Errorf("%s: what was killed got %s", c.bug, r.brief())
		}
		if again := paid.via(p.base).send(t.Context()); !again.replayed() || again.body != first.body {
			t.Errorf("%s: the first answer was %q, and is %s %q", c.bug, first.body, again.brief(), again.body)
		}
		var again reply
		if err := until(t.Context(), func() bool {
			again = lost.via(p.base).send(t.Context())
			return again.code() != "IDEMPOTENCY_IN_PROGRESS"
		}); err != nil {
			t.Fatal(err)
		}
		if unknown := again.code() == "IDEMPOTENCY_OUTCOME_UNKNOWN"; unknown != (c.bug == "none") || count() != c.charges {
			t.Errorf("%s: what ran got %s, charges %s", c.bug, again.brief(), count())
		}
		p.kill(t)
	}
}

// introduction serves a bug until it is there, and returns what was printed.
func introduction(t *testing.T, c Config) string {
	t.Helper()
	out := &output{}
	c.Out = out
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	if err := until(ctx, func() bool { return strings.HasSuffix(out.String(), ".\n") }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return out.String()
}

func TestADemoOfABugSaysHowToFindIt(t *testing.T) {
	t.Parallel()
	for _, b := range append(broken.Bugs(), broken.Bug{Name: broken.None}) {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			text := introduction(t, Config{Bug: b.Name, Listen: freePort})
			finder := "--only " + b.Caught
			switch b.Caught {
			case "load":
				finder = "--rate 50"
			case "":
				finder = "--skip crash-after-answer,"
			}
			command := "go run ./verify/cmd/semel-verify --scenario examples/verify/broken.yaml \\\n"
			for _, want := range []string{b.Name, b.What, command, "--target http://127.0.0.1:", finder} {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			for line := range strings.SplitSeq(text, "\n") {
				if n := utf8.RuneCountInString(line); n > columns {
					t.Errorf("a line of %d columns: %s", n, line)
				}
			}
		})
	}
}

func TestTheTableOfBugs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := PrintBugs(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 1+len(broken.Bugs()) {
		t.Errorf("%d lines for %d bugs", len(lines), len(broken.Bugs()))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > columns {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

func TestADemoOfABugThatCantBeServedFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", freePort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for want, c := range map[string]Config{
		"there is no bug":        {Bug: "all"},
		"address already in use": {Bug: "none", Listen: l.Addr().String()},
		"not a directory":        {Bug: "none", Listen: freePort, Dir: built()},
	} {
		c.Out = &output{}
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestWrongUseOfBugsIsAUsageError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"--bug all", "there is no bug \"all\"; there are none, forget"},
		{"--bug none --once", "--once"},
		{"--dir here", "--bug"},
	} {
		out, err := exec.Command(built(), append([]string{"demo"}, strings.Fields(c.args)...)...).CombinedOutput()
		if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
	out, err := exec.Command(built(), "demo", "--bug", "list").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "free-on-restart") {
		t.Errorf("%v\n%s", err, out)
	}
}
