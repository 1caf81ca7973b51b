package proof

import "time"

// tries is how often Steady runs what fails.
const tries = 5

// Steady runs f, and again while it fails on a machine that stood still meanwhile for a second or longer: then claims and
// short leases end, whoever is right. It returns f's last error.
func Steady(f func() error) (err error) {
	for range tries {
		ended := watch()
		err = f()
		if stood := ended(); err == nil || !stood {
			return err
		}
	}
	return err
}

// watch looks at whether the machine stands still. It returns what ends the watch, and says whether it did.
func watch() (ended func() bool) {
	end, found := make(chan struct{}), make(chan bool)
	go func() {
		stood, last := false, time.Now()
		for {
			select {
			case <-end:
				found <- stood || time.Since(last) > time.Second
				return
			case <-time.After(50 * time.Millisecond):
				stood = stood || time.Since(last) > time.Second
				last = time.Now()
			}
		}
	}()
	return func() bool {
		close(end)
		return <-found
	}
}
