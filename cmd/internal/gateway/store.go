package gateway

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

// OpenStore opens the store that an address names. The only kind is memory://, which keeps records in this process, so
// that they end with it.
func OpenStore(address string) (semel.Store, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	switch {
	case !ok || scheme != "memory":
		return nil, fmt.Errorf("store %q: unknown kind; there is memory://", redacted(address))
	case rest != "":
		return nil, fmt.Errorf("store %q: memory:// takes nothing behind it", redacted(address))
	}
	return memstore.New(), nil
}

// redacted returns an address without its password, which may stand there because the kind was misspelt.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		scheme, _, _ := strings.Cut(address, "://")
		return scheme + "://…"
	}
	return u.Redacted()
}
