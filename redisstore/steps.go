package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/semelhq/semel/driver"
)

// errNoSteps means that a record has steps, and that their key is not where the record is. Nothing is done then: a run
// that took them for none would do their effects again.
var errNoSteps = fmt.Errorf("%w: its steps are not on the server: evicted, deleted, or their slot is being moved", driver.ErrUnreadable)

// SaveStep implements [driver.StepStore]. It fails with [driver.ErrFull] if the server's memory is used up, and with
// [driver.ErrUnreadable] if the steps that were saved before are lost.
func (s *Store) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	owned, err := s.saveStep(ctx, id, by, name, result)
	if err != nil {
		return false, fmt.Errorf("redisstore: save step: %w", err)
	}
	return owned, nil
}

func (s *Store) saveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	if by.Above {
		by = driver.Owner{} // names nobody
	}
	s.runs.take(&id)
	r, err := s.ask(ctx, saveStepScript, s.key(id), ownerBytes(by), name, stepValue(name, result))
	if err != nil {
		return false, err
	}
	before, err := readHead(r.value)
	if err != nil {
		return false, err
	}
	switch _, owned := before.SaveStep(r.now, by); {
	case owned == r.wrote:
		return owned, nil
	case owned && before.Steps:
		return false, errNoSteps
	}
	return false, errDisagree
}

// Steps implements [driver.StepStore]. It fails with [driver.ErrUnreadable] if they are lost, as a whole or one of
// them.
func (s *Store) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	saved, err := s.steps(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("redisstore: steps: %w", err)
	}
	return saved, nil
}

func (s *Store) steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	sent := time.Now()
	got, err := stepsScript.run(ctx, s.client, s.key(id))
	if err != nil {
		return nil, err
	}
	pair, _ := got.([]any)
	if len(pair) != 2 {
		return nil, fmt.Errorf("script replied a %T of %d parts", got, len(pair))
	}
	text, _ := textOf(pair[0])
	r, err := parseReply(text)
	if err != nil {
		return nil, err
	}
	s.clock.set(r.now, sent, time.Now())
	rec, err := readHead(r.value)
	if err != nil {
		return nil, err
	}
	rec, _ = rec.Swept(r.now) // keys end a few milliseconds late
	fields, ok := pair[1].([]any)
	switch {
	case !rec.Steps:
		return nil, nil
	case !ok || len(fields)%2 != 0:
		return nil, fmt.Errorf("script replied a %T of %d names and values", pair[1], len(fields))
	case len(fields) == 0:
		return nil, errNoSteps
	}
	saved := make(map[string][]byte, len(fields)/2)
	for i := 0; i < len(fields); i += 2 {
		name, _ := textOf(fields[i])
		value, _ := textOf(fields[i+1])
		if saved[name], err = stepResult(name, value); err != nil {
			return nil, fmt.Errorf("%w: step %q: %w", driver.ErrUnreadable, name, err)
		}
	}
	return saved, nil
}

// stepValue returns what is kept of a step: its result, and the CRC-32C of name and result.
func stepValue(name string, result []byte) string {
	b := make([]byte, 0, len(result)+4)
	return string(binary.BigEndian.AppendUint32(append(b, result...), stepSum(name, result)))
}

func stepResult(name, value string) ([]byte, error) {
	end := len(value) - 4
	if end < 0 {
		return nil, errors.New("too short")
	}
	result := []byte(value[:end])
	if got, want := stepSum(name, result), binary.BigEndian.Uint32([]byte(value[end:])); got != want {
		return nil, fmt.Errorf("CRC %08x, want %08x", got, want)
	}
	return result, nil
}

func stepSum(name string, result []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, result)
}
