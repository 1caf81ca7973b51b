package pgstore

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/driver"
)

// Statements that are lost on a connection, as after DEALLOCATE ALL, are prepared again.
func TestLostStatementsArePreparedAgain(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{MaxConns: 1})
	ctx := context.Background()
	lose := func() {
		t.Helper()
		if n := value[int](t, s, "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'semel_%'"); n == 0 {
			t.Error("nothing is prepared")
		}
		exec(t, s, "DEALLOCATE ALL")
	}
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	lose()
	claim(t, s, newID(), ask(driver.Hold))
	for range 2 {
		verbs, all := claims(s, 3)
		inOneGroup(s, verbs...)
		for _, r := range all {
			if r.err != nil || !r.owned || r.rec.Attempt != 1 {
				t.Errorf("claim: %t, attempt %d, error %v", r.owned, r.rec.Attempt, r.err)
			}
		}
		lose()
	}
	if owned, err := s.Extend(ctx, id, rec.Owner(), driver.Extension{}); !owned || err != nil {
		t.Errorf("extend: %t, %v", owned, err)
	}
	settle(t, s, id, rec.Owner(), done("paid"))
}

// A pooler that keeps the statements of its clients apart is used with prepared ones, another one without. Where one has
// seemed to, and loses them, verbs go on without.
func TestStatementsArePreparedWhereAPoolerKeepsThem(t *testing.T) {
	t.Parallel()
	keeping, keepingURL := newRenamer(t, server.URL())
	for name, row := range map[string]struct {
		url  string
		want bool
	}{"PgBouncer before 1.21": {bouncer.URL(), false}, "one that renames them": {keepingURL, true}} {
		s := openOn(t, newPool(t, row.url), Options{MaxConns: 1})
		if !s.pooled.Load() || s.prepares.Load() != row.want {
			t.Errorf("%s: a pooler: %t, statements are prepared: %t, want %t", name, s.pooled.Load(), s.prepares.Load(), row.want)
		}
		claim(t, s, newID(), ask(driver.Hold))
		n := value[int](t, s, "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE '%semel_%'")
		if (n > 0) != row.want {
			t.Errorf("%s: %d statements are prepared", name, n)
		}
		if !row.want {
			continue
		}
		keeping.forgets.Store(true)
		exec(t, s, "DEALLOCATE ALL")
		claim(t, s, newID(), ask(driver.Hold))
		if s.prepares.Load() {
			t.Errorf("%s: statements are prepared though they get lost", name)
		}
		verbs, all := claims(s, 3)
		inOneGroup(s, verbs...)
		for _, r := range all {
			if r.err != nil || !r.owned {
				t.Errorf("%s: claim: %t, %v", name, r.owned, r.err)
			}
		}
	}
}

// A renamer passes connections on to a server as a pooler does that keeps prepared statements: under names of its own,
// and with another key of the session than the server's.
type renamer struct {
	forgets atomic.Bool // it passes the names on as they are
}

func newRenamer(t testing.TB, target string) (*renamer, string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &renamer{}
	host := u.Host
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(client, host)
		}
	}()
	u.Host = l.Addr().String()
	return r, u.String()
}

func (r *renamer) serve(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer client.Close()
		for keyed := false; !keyed; {
			m, err := readMessage(server, false)
			if err != nil {
				return
			}
			if keyed = m[0] == 'K'; keyed {
				binary.BigEndian.PutUint32(m[5:], 1) // the process id
			}
			if _, err := client.Write(m); err != nil {
				return
			}
		}
		io.Copy(client, server) //nolint:errcheck // until one of them is gone
	}()
	for first := true; ; first = false {
		m, err := readMessage(client, first)
		if err != nil {
			return
		}
		if !first && !r.forgets.Load() {
			m = renamed(m)
		}
		if _, err := server.Write(m); err != nil {
			return
		}
	}
}

// renamed gives the statement of a message another name, if it has one.
func renamed(m []byte) []byte {
	at := 5
	switch m[0] {
	case 'P':
	case 'B':
		at += strings.IndexByte(string(m[5:]), 0) + 1 // after the portal
	case 'D', 'C':
		if m[5] != 'S' {
			return m
		}
		at++
	default:
		return m
	}
	if m[at] == 0 {
		return m
	}
	out := append(append(append([]byte{}, m[:at]...), "pooled_"...), m[at:]...)
	binary.BigEndian.PutUint32(out[1:], uint32(len(out)-1))
	return out
}
