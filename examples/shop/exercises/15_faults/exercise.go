// Package faults is exercise 15: a test that finds the faults.
package faults

import "fmt"

// A Service takes money once for each key. Its switches make it fail as real ones do.
type Service interface {
	// Charge asks for money. The same key asks for it once. Another amount under the key is an error, and changes
	// nothing.
	Charge(key string, amount int64) error
	// LoseAnswer has the next Charge work, but return an error, as if the network had lost the answer.
	LoseAnswer()
	// Restart ends the process, and starts it again.
	Restart()
	// Charged is what was taken in all.
	Charged() int64
}

// Test tests a service, and says what is wrong with it. It is run against a right one and against several wrong ones,
// which it has to find.
//
// Change this function.
func Test(s Service) error {
	if err := s.Charge("key-1", 100); err != nil {
		return err
	}
	if s.Charged() != 100 {
		return fmt.Errorf("charged %d, want 100", s.Charged())
	}
	return nil
}
