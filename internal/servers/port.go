//go:build unix

package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken below those that a system gives to outgoing connections, so that none of them takes the port of a
// server that is down; and so that the port of a Redis Cluster's bus, 10000 above, is one too.
const (
	firstPort = 10_240
	endPort   = 22_000
	busOffset = 10_000
)

// freePort returns a port on which nobody listened a moment ago, nor on the bus port that belongs to it.
func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(endPort-firstPort)
		if isFree(port) && isFree(port+busOffset) {
			return port, nil
		}
	}
	return 0, errors.New("no free port found")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// onFreePort calls start with free ports until it is not told that another process was faster.
func onFreePort(start func(port int) error) error {
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		err = start(port)
		if err == nil || !errors.Is(err, errPortTaken) {
			return err
		}
		if try == 5 {
			return fmt.Errorf("%d ports tried: %w", try, err)
		}
	}
}
