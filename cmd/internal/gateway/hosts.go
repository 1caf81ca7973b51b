package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A hostList says by which names requests may come. A page whose name its owner has let point to this machine sends its
// own name, which nobody has listed (DNS rebinding); an address it can't send, for it would have to be at that address.
type hostList struct {
	named    []string // in lower case; nil if none were
	loopback bool     // where none are, names of this machine alone
	anyIP    bool     // any address may stand for a name
}

// hosts returns the names for a listener at an address. Those that routes are for are among them.
func (c *Config) hosts(at net.Addr) hostList {
	l := hostList{named: c.Hosts}
	if a, ok := at.(*net.TCPAddr); ok {
		l.loopback = a.IP.IsLoopback()
	}
	if len(l.named) == 0 && !l.loopback {
		return l
	}
	for _, r := range c.Routes {
		if host := patternHost(r.Match); host != "" {
			l.named = append(slices.Clip(l.named), host)
		}
	}
	return l
}

// admits reports whether a request may come by what its Host says. One of HTTP/1.0 may have none; no page sends it.
func (l hostList) admits(host string) bool {
	if host == "" || len(l.named) == 0 && !l.loopback {
		return true
	}
	host = hostName(host)
	for _, name := range l.named {
		below, wild := strings.CutPrefix(name, "*")
		if name == "*" || strings.EqualFold(name, host) || wild && len(host) > len(below) && strings.HasSuffix(host, strings.ToLower(below)) {
			return true
		}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return l.anyIP || l.loopback && ip.Unmap().IsLoopback()
	}
	return l.loopback && (host == "localhost" || strings.HasSuffix(host, ".localhost"))
}

// hostName is a Host without its port, a dot at its end and the brackets of an address, in lower case.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// listedHost reports whether s can stand in a list of hosts: a name or an address without a port, "*.example.com" for
// all names below one, or "*" for all.
func listedHost(s string) bool {
	name := strings.TrimPrefix(s, "*.")
	_, err := netip.ParseAddr(s)
	return s == "*" || err == nil || name != "" && !strings.ContainsAny(name, "*:/@[] ")
}

// administered lets requests to the administration pass that come by a name of this machine, one that is listed, or an
// address, as scrapers and probes do.
func (g *Gateway) administered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts := g.table.Load().adminHosts
		hosts.anyIP = true
		if !hosts.admits(r.Host) {
			newForm(&g.cfg, &g.cfg.Default).refuse(w, hostRefused)
			return
		}
		next.ServeHTTP(w, r)
	})
}
