package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// asksAbout reports whether a path is one at which the gateway itself tells what became of an operation.
func (c *Config) asksAbout(path string) bool {
	below, ok := strings.CutPrefix(path, c.Operations)
	return ok && c.Operations != "" && (below == "" || below[0] == '/')
}

// operationsPolicy is that of questions about operations of all routes: a key may come in any of their headers, and an
// answer may be as large as the largest that one of them stores.
func (c *Config) operationsPolicy() semel.Policy {
	p := semel.Policy{Problems: newForm(c, &c.Default).guards()}
	for _, r := range c.all() {
		p.MaxResponseBody = max(p.MaxResponseBody, r.Policy.MaxResponseBody)
		for _, name := range r.keyHeaders() {
			if !slices.Contains(p.KeyHeaders, name) {
				p.KeyHeaders = append(p.KeyHeaders, name)
			}
		}
	}
	return p
}

// finishes reports whether the route's requests are stored, so that they can be finished without their clients.
func (r *Route) finishes() bool { return r.Policy.RespondAsync || r.Policy.Complete }

// finishes reports whether any route's requests are.
func (c *Config) finishes() bool { return slices.ContainsFunc(c.all(), (*Route).finishes) }

// checkFinishing says what a route lacks whose requests are stored, as far as that shows in the configuration.
func (r *Route) checkFinishing(c *Config, fail func(string, string, ...any)) {
	setting := "respond_async"
	if !r.Policy.RespondAsync {
		setting = "complete"
	}
	if r.finishes() && c.Encryption == nil && c.EncryptionKeysFile == "" {
		fail(setting, "%s stores requests, encrypted: encryption_keys_file is missing", setting)
	}
	if r.Policy.RespondAsync && c.Operations == "" {
		fail(setting, "%s: operations is missing, the path at which clients ask what became of them", setting)
	}
}

// canFinish reports what is missing to finish operations without their clients, once store and secrets are opened.
func (c *Config) canFinish() error {
	if !c.finishes() {
		return nil
	}
	var errs []error
	if _, lists := c.Store.(driver.Lister); !lists {
		errs = append(errs, fmt.Errorf("respond_async and complete: the store, a %T, can't be searched for what is to be finished", c.Store))
	}
	if c.Encryption == nil {
		errs = append(errs, errors.New("respond_async and complete: there are no encryption keys"))
	}
	return errors.Join(errs...)
}

// patternHost returns the host of a pattern of http.ServeMux, "" if it is for all.
func patternHost(pattern string) string {
	host := strings.TrimSuffix(pattern, patternPath(pattern))
	return strings.TrimLeft(host[strings.IndexAny(host, " \t")+1:], " \t")
}

// patternPath returns the path of a pattern of http.ServeMux.
func patternPath(pattern string) string {
	if _, rest, found := strings.Cut(pattern, " "); found {
		pattern = strings.TrimLeft(rest, " \t")
	}
	if i := strings.IndexByte(pattern, '/'); i > 0 {
		return pattern[i:]
	}
	return pattern
}
