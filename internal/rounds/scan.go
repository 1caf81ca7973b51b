package rounds

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/thrown"
)

// scanAgain is how long to wait, shortened at random by up to a half, before a scan that has failed is tried again.
const scanAgain = 5 * time.Second

// Scans reports whether Query.Scanned is of use: whether the store is a [driver.Scanner].
func Scans(store any) bool {
	_, ok := store.(driver.Scanner)
	return ok
}

// Scan has a store that is a [driver.Scanner] scan until ctx ends, for looks with Query.Scanned. It returns at once if
// the store is none. failed is told why a scan has failed; it is then tried again.
func Scan(ctx context.Context, store any, failed func(error)) {
	s, ok := store.(driver.Scanner)
	for ok {
		err := scan(ctx, s)
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return
		}
		failed(err)
		if !pause.For(ctx, pause.Jitter(scanAgain)) {
			return
		}
	}
}

func scan(ctx context.Context, s driver.Scanner) (err error) {
	defer thrown.Catch(&err)
	return s.Scan(ctx)
}
