package faults

import (
	"errors"
	"fmt"
)

// A test of the case in which all goes well finds nothing. Each fault has a case of its own.
func solved(s Service) error {
	want := func(charged int64, why string) error {
		if s.Charged() != charged {
			return fmt.Errorf("%s: charged %d, want %d", why, s.Charged(), charged)
		}
		return nil
	}
	again := func(key, why string, charged int64) error {
		if err := s.Charge(key, 100); err != nil {
			return fmt.Errorf("%s: %w", why, err)
		}
		return want(charged, why)
	}
	if err := errors.Join(again("key-1", "first", 100), again("key-1", "again", 100), again("key-2", "another key", 200)); err != nil {
		return err
	}
	s.LoseAnswer()
	if s.Charge("key-3", 100) == nil {
		return errors.New("no answer was lost")
	}
	if err := again("key-3", "after a lost answer", 300); err != nil {
		return err
	}
	s.Restart()
	if err := again("key-3", "after a restart", 300); err != nil {
		return err
	}
	if s.Charge("key-3", 999) == nil {
		return errors.New("another amount under the same key was accepted")
	}
	return want(300, "another amount under the same key")
}
