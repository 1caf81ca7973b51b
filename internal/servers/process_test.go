//go:build unix

package servers

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestWhatIsDoneInTheWrongOrderIsAnError(t *testing.T) {
	t.Parallel()
	r := redis(t)
	fails := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	fails("start twice", r.Start(), "start Redis: it is running")
	must(t, r.Kill())
	fails("kill twice", r.Kill(), "kill Redis: it is not running")
	fails("stop what is killed", r.Stop(), "it is not running")
	fails("pause what is killed", r.Pause(), "it is not running")
	fails("resume what is killed", r.Resume(), "it is not running")
	must(t, r.Start())
	must(t, r.Close())
	must(t, r.Close())
	fails("start what is closed", r.Start(), "it is closed")
}

// A server that ended by itself can be started again.
func TestStartAfterItsOwnEnd(t *testing.T) {
	t.Parallel()
	r := redis(t)
	if _, err := redisDo(r.Addr(), long, "SHUTDOWN", "NOSAVE"); err == nil {
		t.Fatal("it did not shut down")
	}
	<-r.ended
	must(t, r.Kill())
	must(t, r.Start())
	command(t, r.Addr(), "PONG", "PING")
}

func TestATakenPortIsReported(t *testing.T) {
	t.Parallel()
	p := postgres(t, PostgresOptions{})
	b, err := NewPgBouncer(p, PgBouncerOptions{})
	started(t, b, err)
	for _, s := range []interface {
		Server
		Addr() string
	}{redis(t), p, b} {
		must(t, s.Stop())
		l, err := net.Listen("tcp", s.Addr())
		must(t, err)
		if err := s.Start(); !errors.Is(err, errPortTaken) {
			t.Errorf("%T: %v", s, err)
		}
		l.Close()
		must(t, s.Start())
	}
}

func TestAPortIsGivenOnce(t *testing.T) {
	t.Parallel()
	another, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		return // the system has one address, and nothing can be reserved
	}
	another.Close()
	port, err := freePort()
	must(t, err)
	if !isFree(port) || reserve(port) {
		t.Errorf("port %d is not free, or free for others", port)
	}
}

func TestAnotherPortIsTried(t *testing.T) {
	t.Parallel()
	var tried []int
	must(t, onFreePort(func(port int) error {
		if tried = append(tried, port); len(tried) < 3 {
			return errors.Join(errPortTaken, errors.New("a faster process"))
		}
		return nil
	}))
	if len(tried) != 3 || tried[0] == tried[1] {
		t.Errorf("tried %v", tried)
	}
	tries, broken := 0, errors.New("broken")
	if err := onFreePort(func(int) error { tries++; return broken }); !errors.Is(err, broken) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
	tries = 0
	if err := onFreePort(func(int) error { tries++; return errPortTaken }); !errors.Is(err, errPortTaken) || tries != 5 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// A process that is killed with its servers running, and one of them paused, leaves neither servers nor files.
func TestServersDieWithTheProcessThatStartedThem(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), leftBehind+"=1")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	said := strings.Fields(line)
	if len(said) != 4 || said[3] != "<nil>" {
		t.Fatal(line)
	}
	connect(t, said[0]).value(t, "select 1", "1")
	must(t, cmd.Process.Kill())
	cmd.Wait() //nolint:errcheck // it was killed
	eventually(t, func() error {
		if _, err := os.Stat(said[2]); !errors.Is(err, os.ErrNotExist) {
			return errors.Join(errors.New("the folder is left"), err)
		}
		return nil
	})
	refused(t, said[0])
	refused(t, said[1])
}

func TestAFolderThatOthersCanNotReachIsGoneAround(t *testing.T) {
	t.Parallel()
	shut := t.TempDir() // below one that is its owner's only
	must(t, os.Chmod(shut, 0o700))
	want := shut
	if os.Geteuid() == 0 {
		want = "/tmp"
	}
	if got := reachable(shut); got != want {
		t.Errorf("reachable(%s) = %s, want %s", shut, got, want)
	}
	if got := reachable("/"); got != "/" {
		t.Errorf("reachable(/) = %s", got)
	}
}
