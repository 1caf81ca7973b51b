package faults

import (
	"context"
	"errors"
	"fmt"
)

// A service has one of the usual faults, or none.
type service struct {
	fault   string
	seen    map[string]int64
	charged int64
	loses   bool
}

func (s *service) Charge(key string, amount int64) error {
	before, repeat := s.seen[key]
	if repeat && before != amount && s.fault != "another amount is accepted" {
		return errors.New("the key was used for another amount")
	}
	if repeat && s.fault != "the key is ignored" {
		return nil
	}
	s.charged += amount
	lost := s.loses
	if s.loses = false; !lost || s.fault != "a lost answer is forgotten" {
		s.seen[key] = amount
	}
	if lost {
		return errors.New("the connection broke")
	}
	return nil
}

func (s *service) LoseAnswer()    { s.loses = true }
func (s *service) Charged() int64 { return s.charged }

func (s *service) Restart() {
	if s.fault == "keys are kept in memory only" {
		clear(s.seen)
	}
}

// Check says what is wrong with Test, or nil.
func Check(_ context.Context, solution bool) error {
	test := Test
	if solution {
		test = solved
	}
	if err := test(&service{seen: map[string]int64{}}); err != nil {
		return fmt.Errorf("the test finds a fault in a service that has none: %w", err)
	}
	for _, fault := range []string{"the key is ignored", "a lost answer is forgotten", "keys are kept in memory only", "another amount is accepted"} {
		if test(&service{fault: fault, seen: map[string]int64{}}) == nil {
			return fmt.Errorf("a service has a fault that the test does not find: %s", fault)
		}
	}
	return nil
}
