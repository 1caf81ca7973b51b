package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/internal/child"
)

// processVariable is set in a process that is one instance of a shop: its configuration as JSON, and where it kills
// itself.
const processVariable = "SHOP_E2E_PROCESS"

type processConfig struct {
	Data, Database, Cache, NATS, Processor, Webhook string
	AtMostOnce                                      bool
	IntentLife, Lease                               time.Duration
	CrashAt                                         string
}

// serveProcess is the main function of such a process.
func serveProcess(text string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	h, err := host.Open(context.Background(), host.Config{
		Data: c.Data, Database: c.Database, Cache: c.Cache, NATS: c.NATS, Processor: c.Processor, Webhook: c.Webhook, Listen: "localhost:0",
		AtMostOnce: c.AtMostOnce, IntentLife: c.IntentLife, Lease: c.Lease, Log: slog.New(slog.DiscardHandler),
		Crash: func(point string) {
			if point == c.CrashAt {
				syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it does not return
				select {}
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(h.URLs[0])
	return h.Run(context.Background())
}

// A process is one more instance, on the data of a stage.
type process struct {
	url   string
	ended chan struct{}
}

// newProcess starts an instance that kills itself at a named point. The stage's broker must have an address.
func (s *stage) newProcess(t *testing.T, crashAt string) *process {
	t.Helper()
	c := s.config
	text, err := json.Marshal(processConfig{
		Data: c.Data, Database: c.Database, Cache: c.Cache, NATS: c.NATS, Processor: s.host.Processor, Webhook: c.Webhook,
		AtMostOnce: c.AtMostOnce, IntentLife: c.IntentLife, Lease: c.Lease, CrashAt: crashAt,
	})
	must(t, err)
	program, err := child.Program()
	must(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &process{ended: make(chan struct{})}
	lines := bufio.NewScanner(out)
	if lines.Scan() {
		p.url = strings.TrimSpace(lines.Text())
	}
	go func() {
		for lines.Scan() { // until it has ended
		}
		cmd.Wait() //nolint:errcheck // it is killed
		close(p.ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-p.ended
	})
	if p.url == "" {
		t.Fatal("the process does not serve")
	}
	return p
}

func (p *process) dead() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
