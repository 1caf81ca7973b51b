package gateway

import (
	"net"
	"net/netip"
)

// trusts reports whether a peer is one of the trusted proxies. Only such a peer's word about somebody else counts: its
// scope header, its X-Forwarded headers. Where others than this machine can reach the gateway nobody is one by default:
// that a proxy on this machine is in front would be a guess, and any program here could speak for anybody.
func (c *Config) trusts(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	addr = addr.Unmap().WithZone("")
	for _, n := range c.TrustedProxies {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}
