package redistest

import (
	"bufio"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/redisstore"
)

// works opens a URL and has a store work on it.
func works(t *testing.T, url string) *redisclient.Client {
	t.Helper()
	c, err := redisclient.Open(url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	t.Cleanup(c.Close)
	s := open(t, c, redisstore.Options{})
	id := newID()
	rec := claim(t, s, id, ask(semel.Hold))
	settle(t, s, id, rec.Owner(), done("answer"))
	n := 0
	if err := s.List(t.Context(), driver.Query{}, func(driver.ID, driver.Record) bool { n++; return true }); err != nil || n != 1 {
		t.Errorf("%s: it lists %d records, error %v", url, n, err)
	}
	return c
}

func TestOneServerAndAClusterByURL(t *testing.T) {
	t.Parallel()
	works(t, "redis://"+single.Get(t).Addr())
	works(t, "redis://"+single.Get(t).Addr()+"/3")
	addrs := cluster.Get(t).Addrs()
	works(t, "redis+cluster://"+addrs[0])
	works(t, "redis+cluster://"+addrs[2]+"?addr="+addrs[1])
	for _, url := range []string{"redis+cluster://" + single.Get(t).Addr(), "redis://127.0.0.1:1"} {
		if c, err := redisclient.Open(url); err == nil {
			c.Close()
			t.Errorf("%s is opened", url)
		}
	}
}

func TestAnEncryptedServerByURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := selfSigned(t, dir)
	port := freePort(t)
	r, err := servers.NewRedis("--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	url := "rediss://127.0.0.1:" + port
	works(t, url+"?skip_verify=true")
	if c, err := redisclient.Open(url); err == nil {
		c.Close()
		t.Error("a certificate of an unknown authority is accepted")
	}
}

// The store works on through a failover that Sentinel brings about, once that is over.
func TestThePrimaryThatSentinelNames(t *testing.T) {
	t.Parallel()
	primary, replica, err := servers.NewRedisPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { primary.Close(); replica.Close() })
	host, port, _ := strings.Cut(primary.Addr(), ":")
	// A primary that only gets no time on a busy machine is not to be taken for one that is gone.
	sentinel := startSentinel(t, fmt.Sprintf(`sentinel monitor mymaster %s %s 1
sentinel down-after-milliseconds mymaster 60000
sentinel failover-timeout mymaster 5000
`, host, port))
	operator := rueidisTo(t, sentinel)
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if replicas, _ := do(t, operator, "", "SENTINEL", "REPLICAS", "mymaster").([]any); len(replicas) > 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("Sentinel does not find the replica")
		}
	}
	c := works(t, "redis://"+sentinel+"?master_set=mymaster")
	s := open(t, c, redisstore.Options{})
	do(t, operator, "", "SENTINEL", "SET", "mymaster", "down-after-milliseconds", "500")
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, owned, err := s.Claim(t.Context(), newID(), ask(semel.Hold))
		if err == nil && owned {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the store does not find the new primary: %v", err)
		}
	}
}

// startSentinel starts a Sentinel, and returns its address.
func startSentinel(t *testing.T, config string) string {
	t.Helper()
	port := freePort(t)
	addr := "127.0.0.1:" + port
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte("port "+port+"\nbind 127.0.0.1\ndir "+dir+"\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait() //nolint:errcheck // it says that it was killed
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-ended
	})
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := answersAs(addr, cmd.Process.Pid)
		if err == nil {
			return addr
		}
		select {
		case <-ended:
			t.Fatalf("the Sentinel has ended: %v", err)
		default:
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// answersAs tells whether the process of that id answers at an address.
func answersAs(addr string, pid int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "INFO server\r\n"); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if told, ok := strings.CutPrefix(lines.Text(), "process_id:"); ok {
			if told != strconv.Itoa(pid) {
				return fmt.Errorf("another process answers: %s", told)
			}
			return nil
		}
	}
	return fmt.Errorf("%s says nothing of its process: %w", addr, cmp.Or(lines.Err(), io.EOF))
}

// freePort returns a port that stays free for whoever asked for it.
func freePort(t *testing.T) string {
	t.Helper()
	addr, err := servers.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// selfSigned writes a certificate for 127.0.0.1 that no authority has signed, and its key.
func selfSigned(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
