// Package settings checks settings and fills in their defaults. It collects all that is wrong, so that it is reported
// at once.
package settings

import (
	"errors"
	"fmt"
	"time"
)

// Faults are what is wrong with some settings.
type Faults struct {
	Where string // put before each fault, such as "options: "; none if it is empty

	errs []error
}

// Add adds a fault, as fmt.Errorf formats it.
func (f *Faults) Add(format string, a ...any) {
	f.errs = append(f.errs, fmt.Errorf(f.Where+format, a...))
}

// If adds a fault if something is wrong.
func (f *Faults) If(wrong bool, format string, a ...any) {
	if wrong {
		f.Add(format, a...)
	}
}

// Join adds the faults that others have found, as they are; nil for none.
func (f *Faults) Join(err error) {
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

// Err returns all faults as one error, nil if there are none.
func (f *Faults) Err() error { return errors.Join(f.errs...) }

// A Number is the type of a setting.
type Number interface{ int | int64 | time.Duration }

// Fill gives a setting that is zero its default. A negative one is a fault, and gets the default too, so that no other
// fault follows from it.
func Fill[T Number](f *Faults, name string, setting *T, usual T) {
	f.If(*setting < 0, "%s is negative: %v", name, *setting)
	if *setting <= 0 {
		*setting = usual
	}
}

// FillUpTo is Fill for a setting with a largest value. A larger one is a fault, and gets the largest.
func FillUpTo[T Number](f *Faults, name string, setting *T, usual, most T) {
	Fill(f, name, setting, usual)
	f.If(*setting > most, "%s is %v, want at most %v", name, *setting, most)
	*setting = min(*setting, most)
}
