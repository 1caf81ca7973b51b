package keys

import "fmt"

// The key is that of the wish: not of the body, the user or the time.
func solvedKey(c Click) string { return c.Wish }

// Each part says how long it is, or two pairs could be written in the same way.
func solvedIdentity(tenant, key string) string {
	return fmt.Sprintf("%d:%s%d:%s", len(tenant), tenant, len(key), key)
}
