//go:build !linux

package chaos

import (
	"errors"
	"fmt"
)

var errNoDisk = fmt.Errorf("mount a file system: only on Linux: %w", errors.ErrUnsupported)

func mount(string) error        { return errNoDisk }
func limit(string, int64) error { return errNoDisk }
func unlimit(string) error      { return errNoDisk }
func unmount(string) error      { return errNoDisk }
