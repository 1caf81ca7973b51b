package broken

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A journal is a file to which records are only ever appended, a line each. The last line of an operation's highest
// fence is what is known of it. It grows for ever: this layer is there to be looked at, not to be kept.
type journal struct {
	file *os.File

	mu      sync.Mutex // orders what is written
	written int        // lines

	syncing sync.Mutex // held while the file is synced
	synced  int        // lines
}

// An entry is a line of a journal.
type entry struct {
	ID string `json:"id"`
	record
}

// openJournal opens a journal, or begins one, and returns what is in it. A last line without an end was never
// acknowledged: it is cut off.
func openJournal(path string) (*journal, map[string]*record, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open journal: %w", err)
	}
	records, err := load(f)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open journal: %w", err), f.Close())
	}
	return &journal{file: f}, records, nil
}

func load(f *os.File) (map[string]*record, error) {
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if whole < len(text) {
		if err := f.Truncate(int64(whole)); err != nil {
			return nil, err
		}
	}
	records := map[string]*record{}
	for line := range bytes.Lines(text[:whole]) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		if known := records[e.ID]; known == nil || e.Fence >= known.Fence {
			records[e.ID] = &e.record
		}
	}
	return records, nil
}

// append writes a record, and returns once it is durable. Calls at the same time share one sync.
func (j *journal) append(id string, rec record) error {
	line, err := json.Marshal(entry{id, rec})
	if err != nil {
		return journalError(err)
	}
	j.mu.Lock()
	_, err = j.file.Write(append(line, '\n'))
	j.written++
	mine := j.written
	j.mu.Unlock()
	if err != nil {
		return journalError(err)
	}
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if j.synced >= mine {
		return nil
	}
	j.mu.Lock()
	upTo := j.written
	j.mu.Unlock()
	if err := j.file.Sync(); err != nil {
		return journalError(err)
	}
	j.synced = upTo
	return nil
}

func (j *journal) close() error {
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

// journalError says that a record could not be made durable.
func journalError(err error) error { return fmt.Errorf("write journal: %w", err) }
