package pgstore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// stepsOf gives one row without a name for a record that has no steps, and none where there is no record.
const stepsOf = `SELECT r.layout, r.steps, s.name, s.result FROM {schema}.records r LEFT JOIN {schema}.steps s ON r.steps AND s.id = r.id
	WHERE r.id = $1`

// SaveStep implements [driver.StepStore]. It fails with [driver.ErrFull] if the server's disk has no room for the
// result, or a field has none. While a transaction that has changed the record is in doubt, it waits for the end of
// that, or of ctx.
func (s *Store) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (owned bool, err error) {
	if by.Above {
		return false, ctx.Err()
	}
	if len(result) > maxAnswer {
		return false, fmt.Errorf("pgstore: save step: %w: the result has %d bytes, at most %d go into a field",
			driver.ErrFull, len(result), maxAnswer)
	}
	err = s.do(ctx, s.saveStepCall(id, by, name, result), func(row [][]byte) error {
		owned = boolOf(row[0])
		return readable(row[0])
	})
	if err != nil {
		return false, fmt.Errorf("pgstore: save step: %w", noRoom(err))
	}
	return owned, nil
}

func (s *Store) saveStepCall(id driver.ID, by driver.Owner, name string, result []byte) *call {
	if result == nil {
		result = []byte{} // NULL otherwise
	}
	return (&call{sql: s.sql.saveStep}).bytes(id[:]).int8(int64(by.Fence)).bytes(by.Token[:]).text(name).bytes(result)
}

// errNoSteps means that a record has steps, and that the table of steps has none of it: a run that took them for none
// would do their effects again.
var errNoSteps = fmt.Errorf("%w: its steps are missing in the database", driver.ErrUnreadable)

// Steps implements [driver.StepStore]. They are from the server that decides. It fails with [driver.ErrUnreadable] if
// all of them are lost.
func (s *Store) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	steps := map[string][]byte{}
	err := again(ctx, func() error {
		clear(steps)
		return s.once(ctx, (&call{sql: s.sql.steps}).bytes(id[:]), func(row [][]byte) error {
			if int2Of(row[0]) > layoutVersion {
				return readable(nil)
			}
			if row[2] != nil {
				steps[string(row[2])] = append([]byte{}, row[3]...)
			} else if boolOf(row[1]) {
				return errNoSteps
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("pgstore: steps: %w", err)
	}
	return steps, nil
}
