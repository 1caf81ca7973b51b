package redisclient

import "fmt"

// Check reports what is wrong with a URL for [Open], without connecting.
func Check(rawURL string) error {
	if _, _, err := options(rawURL); err != nil {
		return fmt.Errorf("open Redis: %w", err)
	}
	return nil
}
