package chaos

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const (
	mountFlags = syscall.MS_NOSUID | syscall.MS_NODEV
	// unlimited is what a disk may take of the machine's memory.
	unlimited = "size=50%"
)

func mount(dir string) error {
	if err := syscall.Mount("semel-chaos", dir, "tmpfs", mountFlags, unlimited+",mode=0700"); err != nil {
		return fmt.Errorf("mount a file system, which takes root or a user namespace: %w", err)
	}
	return nil
}

// limit makes a disk as small as what is on it and so many blocks more.
func limit(dir string, room int64) error {
	for try := 0; ; try++ {
		var s syscall.Statfs_t
		if err := syscall.Statfs(dir, &s); err != nil {
			return os.NewSyscallError("statfs", err)
		}
		blocks := max(1, int64(s.Blocks)-int64(s.Bfree)+room)
		err := syscall.Mount("semel-chaos", dir, "tmpfs", mountFlags|syscall.MS_REMOUNT, fmt.Sprintf("nr_blocks=%d", blocks))
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EINVAL) || try == 1000: // which says that more has been written meanwhile
			return fmt.Errorf("make a file system smaller: %w", err)
		}
	}
}

func unlimit(dir string) error {
	if err := syscall.Mount("semel-chaos", dir, "tmpfs", mountFlags|syscall.MS_REMOUNT, unlimited); err != nil {
		return fmt.Errorf("make a file system larger: %w", err)
	}
	return nil
}

func unmount(dir string) error {
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount a file system: %w", err)
	}
	return nil
}
