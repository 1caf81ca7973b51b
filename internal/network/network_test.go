package network

import (
	"net/netip"
	"testing"
)

func TestPeersAreFoundInNetworksHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	networks := []netip.Prefix{
		PlainPrefix(netip.MustParsePrefix("::ffff:10.0.0.0/104")),
		netip.MustParsePrefix("fe80::/10"),
		PlainPrefix(netip.MustParsePrefix("::/95")),
	}
	for peer, in := range map[string]bool{
		"10.1.2.3:80": true, "10.1.2.3": true, "[::ffff:10.1.2.3]:80": true,
		"[fe80::1%eth0]:80": true, "fe80::1%eth0": true, "[::1]:80": true,
		"11.1.2.3:80": false, "[2001:db8::1]:80": false, "": false, "@": false, "/run/socket": false, "10.1.2.3:80:80": false,
	} {
		if got := Contain(networks, Peer(peer)); got != in {
			t.Errorf("%q is in the networks: %t, want %t", peer, got, in)
		}
	}
}
