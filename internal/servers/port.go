//go:build unix

package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// Ports are taken below those that a system gives to outgoing connections, so that none of them takes the port of a
// server that is down; and so that the port of a Redis Cluster's bus, 10000 above, is one too.
const (
	firstPort = 10_240
	endPort   = 22_000
	busOffset = 10_000
)

// freePort returns a port on which nobody listened a moment ago, nor on the bus port that belongs to it. It is given to
// nobody else as long as this process lives.
func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(endPort-firstPort)
		if reserve(port) && isFree(port) && isFree(port+busOffset) {
			return port, nil
		}
	}
	return 0, errors.New("no free port found")
}

var reservations struct {
	mu  sync.Mutex
	all []net.Listener // kept from being collected, which would close them
}

// FreeAddress returns an address of this machine with a port that nobody else has, in this process or another, as long
// as this process lives: a program that a test starts finds it free again however often it is killed.
func FreeAddress() (string, error) {
	port, err := freePort()
	return loopback(port), err
}

// reserve reports whether a port is nobody's, and makes it this process's: a server that is down finds its port free
// when it starts again, although other tests, and other processes, start servers meanwhile. Whoever has a port listens
// on it at another address of the loopback. Where the system has no such address, nothing is reserved.
func reserve(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port)))
	if err != nil {
		return !errors.Is(err, syscall.EADDRINUSE)
	}
	reservations.mu.Lock()
	defer reservations.mu.Unlock()
	reservations.all = append(reservations.all, l)
	return true
}

// passingPort returns a port on which nobody listens, at any address. It is for servers that want a port for themselves
// at all addresses, if it may be another one each time that they start.
func passingPort() int {
	for range 1000 {
		port := endPort + rand.IntN(busOffset)
		if l, err := net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	return 0 // the server says what is wrong with it
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
