package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// SaveStep implements [driver.StepStore]. It fails with [driver.ErrFull] if the disk has no room for the result. Like a
// settle it waits for a transaction of this store that has the database, until ctx ends.
func (s *Store) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	kept := append([]byte{}, result...) // whoever leads may write it after this call has returned
	_, owned, err := decide(ctx, s, &call{size: 1024 + len(name) + len(kept)}, func(u *unit) (struct{}, bool, error) {
		owned, err := u.saveStep(id, by, name, kept)
		return struct{}{}, owned, err
	})
	if err != nil {
		return false, fmt.Errorf("sqlitestore: save step: %w", noRoom(err)) // also if that came out in the commit: it can be repeated
	}
	return owned, nil
}

// saveStep is the verb of that name. There are steps only of a record that says so; should a damaged record have left
// some when it was deleted, they go before the first of the new one.
func (u *unit) saveStep(id driver.ID, by driver.Owner, name string, result []byte) (owned bool, err error) {
	old, err := u.find(id)
	if err != nil {
		return false, err
	}
	rec, owned := old.SaveStep(u.now, by)
	if !owned {
		return false, nil
	}
	if !old.Steps {
		if _, err := u.run(deleteSteps, id[:]); err != nil {
			return false, noRoom(err)
		}
	}
	if _, err := u.run(insertStep, id[:], name, int64(u.now), result); err != nil {
		return false, noRoom(err)
	}
	u.wrote = true
	if old.Steps {
		return true, nil
	}
	stored, err := u.write(id, &old, &rec)
	if err == nil && !stored {
		err = errIndex
	}
	if err == nil {
		return true, nil
	}
	if _, undone := u.run(deleteSteps, id[:]); undone != nil { // it is the only one
		u.reset()
	}
	return false, noRoom(err)
}

// errNoSteps means that a record has steps, and that there are none of it: a run that took them for none would do their
// effects again.
var errNoSteps = fmt.Errorf("%w: its steps are missing in the database", driver.ErrUnreadable)

// Steps implements [driver.StepStore]. It fails with [driver.ErrUnreadable] if all of them are lost.
func (s *Store) Steps(ctx context.Context, id driver.ID) (saved map[string][]byte, err error) {
	err = s.read(ctx, func(c *session) (err error) {
		saved, err = c.steps(id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: steps: %w", err)
	}
	return saved, nil
}

// steps reads the record and its steps in one statement, so that both are of the same moment. Steps are only those of a
// record that says so: there may be some that a damaged one has left.
func (s *session) steps(id driver.ID) (map[string][]byte, error) {
	st, err := s.stmt(selectSteps)
	if err != nil {
		return nil, err
	}
	var rec driver.Record
	saved := map[string][]byte{}
	rows, err := st.QueryContext(detached, id[:], id[:])
	err = each(rows, err, func() (more bool, err error) {
		var data sql.RawBytes
		var name sql.NullString
		var result []byte
		if err := rows.Scan(&data, &name, &result); err != nil {
			return false, err
		}
		if name.Valid {
			saved[name.String] = result
			return true, nil
		}
		return true, rec.UnmarshalBinary(data)
	})
	switch {
	case err != nil:
		return nil, err
	case !rec.Steps:
		return map[string][]byte{}, nil
	case len(saved) == 0:
		return nil, errNoSteps
	}
	return saved, nil
}
