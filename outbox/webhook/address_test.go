package webhook_test

import (
	"net/netip"
	"testing"

	"github.com/semelhq/semel/outbox/webhook"
)

func TestOnlyAddressesOfTheInternetArePublic(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"8.8.8.8": true, "93.184.216.34": true, "172.15.255.255": true, "172.32.0.1": true, "100.63.255.255": true,
		"2606:4700::1111": true, "2a00:1450:4001::200e": true, "64:ff9b::8.8.8.8": true, "::ffff:8.8.8.8": true,

		"0.0.0.0": false, "127.0.0.1": false, "127.1.2.3": false, "10.1.2.3": false, "172.16.0.1": false,
		"172.31.255.255": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "198.18.0.1": false,
		"192.0.2.1": false, "224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false,
		"fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "fec0::1": false,
		"64:ff9b::10.0.0.1": false, "64:ff9b::169.254.169.254": false, "64:ff9b:1::1": false,
		"2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false, "3fff::1": false, "5f00::1": false,
	} {
		if got := webhook.Public(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is public: %v, want %v", address, got, want)
		}
	}
}
