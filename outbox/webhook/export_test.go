package webhook

import (
	"net/http"
	"net/netip"
)

// Over lets a sender's requests go to a function instead of the network.
func (s *Sender) Over(t http.RoundTripper) { s.client.Transport = t }

// Public is public.
func Public(a netip.Addr) bool { return public(a) }
