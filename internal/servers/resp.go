//go:build unix

package servers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A redisError is a reply that begins with "-".
type redisError string

func (e redisError) Error() string { return string(e) }

// A redisConn speaks as much of Redis' protocol, version 2, as setting servers up takes.
type redisConn struct {
	net.Conn
	in       *bufio.Reader
	patience time.Duration
}

// dialRedis connects. That, and each command, may take as long as patience.
func dialRedis(addr string, patience time.Duration) (*redisConn, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &redisConn{Conn: conn, in: bufio.NewReader(conn), patience: patience}, nil
}

// redisDo connects for one command.
func redisDo(addr string, patience time.Duration, args ...string) (string, error) {
	c, err := dialRedis(addr, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.do(args...)
}

// do returns the reply as text, without distinction of its kind. Null is empty.
func (c *redisConn) do(args ...string) (string, error) {
	var command strings.Builder
	fmt.Fprintf(&command, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&command, "$%d\r\n%s\r\n", len(a), a)
	}
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, command.String()); err != nil {
		return "", err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", redisError(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(c.in, text); err != nil {
			return "", err
		}
		return string(text[:n]), nil
	}
	return "", errors.New("a reply of an unexpected kind: " + strconv.Quote(line))
}

// readInfo reads "name:value" lines, as INFO and CLUSTER INFO have them.
func readInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}
