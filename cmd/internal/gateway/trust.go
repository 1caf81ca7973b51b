package gateway

import "github.com/semelhq/semel/internal/network"

// trusts reports whether a peer is one of the trusted proxies. Only such a peer's word about somebody else counts: its
// scope header, its X-Forwarded headers. Where others than this machine can reach the gateway nobody is one by default:
// that a proxy on this machine is in front would be a guess, and any program here could speak for anybody.
func (c *Config) trusts(remote string) bool {
	return network.Contain(c.TrustedProxies, network.Peer(remote))
}
