// Package network tells which networks the addresses of peers are in.
package network

import (
	"net"
	"net/netip"
	"slices"
)

// Plain returns an address as addresses are compared: without its zone, and as one of IPv4 if it is that in the form of
// IPv6.
func Plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// PlainPrefix is Plain for a network.
func PlainPrefix(n netip.Prefix) netip.Prefix {
	if n.Addr().Is4In6() && n.Bits() >= 96 {
		return netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
	}
	return n
}

// Peer returns the plain address of a peer, such as http.Request.RemoteAddr, with or without a port. If it has none, the
// result is the zero address, which is in no network.
func Peer(remote string) netip.Addr {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return Plain(addr)
}

// Contain reports whether a plain address is in one of the networks.
func Contain(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}
