package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/semelhq/semel/internal/network"
)

// errNotPublic means that an endpoint's name stands for an address inside of somebody's network.
var errNotPublic = errors.New("the address is not public")

// Addresses that are not somebody else's on the internet (IANA's registries of special-purpose addresses).
var (
	special4 = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")
	global6  = netip.MustParsePrefix("2000::/3") // all else is special, or not given to anybody
	special6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
	nat64    = netip.MustParsePrefix("64:ff9b::/96") // the last four bytes are an IPv4 address
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// public reports whether an address belongs to the internet.
func public(a netip.Addr) bool {
	a = network.Plain(a)
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if a.Is4() {
		return !network.Contain(special4, a)
	}
	return global6.Contains(a) && !network.Contain(special6, a)
}

// guardedDialer returns a function that connects to public addresses, and to those of the networks. It looks at the
// address that is connected to, after the name was looked up: a name that stands for another address a moment later
// gets past no check.
func guardedDialer(allowed []netip.Prefix) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotPublic, err)
		}
		if a := at.Addr(); !public(a) && !network.Contain(allowed, network.Plain(a)) {
			return fmt.Errorf("%w: %s", errNotPublic, a)
		}
		return nil
	}}
	return d.DialContext
}
