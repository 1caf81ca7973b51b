package gateway

import (
	"bufio"
	"io"
	"testing"

	"github.com/semelhq/semel/cmd/internal/rawhttp"
)

// raw sends bytes and reads one answer.
func raw(t *testing.T, address, request string) answer {
	t.Helper()
	c := dial(t, address)
	io.WriteString(c, request) // a server that refuses early need not take all; it has answered then
	return readAnswer(t, bufio.NewReader(c))
}

var dial = rawhttp.Dial

func readAnswer(t *testing.T, in *bufio.Reader) (a answer) {
	t.Helper()
	a.status, a.header, a.body = rawhttp.Receive(t, in)
	return a
}
