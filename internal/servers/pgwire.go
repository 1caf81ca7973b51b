//go:build unix

package servers

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// A pgConn speaks as much of PostgreSQL's protocol, version 3.0, as telling whether a server serves takes: trusted
// users and simple queries.
type pgConn struct {
	net.Conn
	in *bufio.Reader
}

// A pgError is an ErrorResponse.
type pgError struct{ code, message string }

func (e *pgError) Error() string { return e.message + " (SQLSTATE " + e.code + ")" }

// dialPG connects and waits until queries are taken. What it waits for, and each query, may take as long as patience.
func dialPG(addr, database string, patience time.Duration) (*pgConn, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	c := &pgConn{Conn: conn, in: bufio.NewReader(conn)}
	parameters := "user\x00postgres\x00database\x00" + database + "\x00\x00"
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(parameters)))
	hello = binary.BigEndian.AppendUint32(hello, 3<<16)
	if _, err = c.exchange(append(hello, parameters...), patience); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// query returns the rows' columns as text; a null is empty.
func (c *pgConn) query(sql string, patience time.Duration) ([][]string, error) {
	message := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(sql)+1))
	return c.exchange(append(message, sql+"\x00"...), patience)
}

// exchange sends and reads up to ReadyForQuery.
func (c *pgConn) exchange(message []byte, patience time.Duration) (rows [][]string, err error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := c.Write(message); err != nil {
		return nil, err
	}
	var failed error
	for {
		kind, body, err := c.receive()
		if err != nil {
			return nil, errors.Join(failed, err) // behind a fatal error the server closes
		}
		switch kind {
		case 'E':
			failed = readError(body)
		case 'D':
			rows = append(rows, readRow(body))
		case 'R':
			if binary.BigEndian.Uint32(body) != 0 {
				return nil, errors.New("a password is asked for")
			}
		case 'Z':
			return rows, failed
		}
	}
}

func (c *pgConn) receive() (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > 1<<24 {
		return 0, nil, fmt.Errorf("a message of %d bytes", n)
	}
	body = make([]byte, n-4)
	_, err = io.ReadFull(c.in, body)
	return head[0], body, err
}

func readError(body []byte) error {
	e := &pgError{}
	for field := range strings.SplitSeq(string(body), "\x00") {
		switch {
		case strings.HasPrefix(field, "C"):
			e.code = field[1:]
		case strings.HasPrefix(field, "M"):
			e.message = field[1:]
		}
	}
	return e
}

func readRow(body []byte) []string {
	row := make([]string, binary.BigEndian.Uint16(body))
	body = body[2:]
	for i := range row {
		n := int32(binary.BigEndian.Uint32(body))
		body = body[4:]
		if n > 0 {
			row[i], body = string(body[:n]), body[n:]
		}
	}
	return row
}
