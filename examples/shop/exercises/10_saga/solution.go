package saga

import (
	"context"
	"errors"
	"fmt"
)

// The failed step is taken back too, unless it is certain that it did nothing.
func solved(ctx context.Context, steps []Step) error {
	for i, s := range steps {
		err := s.Do(ctx)
		if err == nil {
			continue
		}
		last := i
		if errors.Is(err, ErrRefused) {
			last--
		}
		for ; last >= 0; last-- {
			if failed := undo(ctx, steps[last]); failed != nil {
				return errors.Join(err, failed)
			}
		}
		return err
	}
	return nil
}

func undo(ctx context.Context, s Step) (err error) {
	for range 10 {
		if err = s.Undo(ctx); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s can't be taken back: %w", s.Name, err)
}
