package memstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/semelhq/semel/driver"
)

// SaveStep implements [driver.StepStore]. It fails with [driver.ErrFull] and changes nothing if there is no room for
// the result.
func (s *Store) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("memstore: save step: %w", err)
	}
	owned, err := s.saveStep(id, by, name, result)
	if errors.Is(err, driver.ErrFull) && s.makeRoom() {
		owned, err = s.saveStep(id, by, name, result)
	}
	if err != nil {
		return false, fmt.Errorf("memstore: save step: %w", err)
	}
	return owned, nil
}

func (s *Store) saveStep(id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	at := sh.find(&id)
	rec, owned := sh.record(at, now).SaveStep(now, by)
	if !owned {
		return false, nil
	}
	saved := sh.steps[at]
	if _, has := saved[name]; has {
		return true, nil
	}
	if err := s.room.take(&id, use{0, stepWeight(name, result)}, true); err != nil {
		return false, err
	}
	sh.update(at, &rec)
	if saved == nil {
		saved = map[string][]byte{}
		sh.steps[at] = saved
	}
	saved[strings.Clone(name)] = append([]byte{}, result...)
	return true, nil
}

// Steps implements [driver.StepStore].
func (s *Store) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memstore: steps: %w", err)
	}
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return maps.Clone(sh.steps[sh.find(&id)]), nil
}
