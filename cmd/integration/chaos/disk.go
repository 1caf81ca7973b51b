package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A disk is a file system of the run, on which SQLite's files are, so that it can be full for a while. It is in memory:
// what a process that is killed has written stays, and what is on it ends with it.
//
// It is full once it is made as small as what it holds. A file that takes the rest would have to be as large as all
// that the run may still write, and in memory too.
type disk struct{ dir string }

// newDisk makes a disk, seen at dir, which must not exist.
func newDisk(dir string) (*disk, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := mount(dir); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return &disk{dir}, nil
}

// fill fills the disk for as long as hold takes. Room for so many blocks is left on it, so that what is written may fit
// by half.
func (d *disk) fill(room int64, hold func()) error {
	if err := limit(d.dir, room); err != nil {
		return err
	}
	hold()
	return unlimit(d.dir)
}

// keep copies what is on the disk to a folder.
func (d *disk) keep(to string) error {
	if err := os.CopyFS(filepath.Join(to, "files"), os.DirFS(d.dir)); err != nil {
		return fmt.Errorf("keep what is on the disk: %w", err)
	}
	return nil
}

// close ends the disk. What uses a file on it may go on to.
func (d *disk) close() error {
	if err := unmount(d.dir); err != nil {
		return err
	}
	return os.Remove(d.dir)
}
