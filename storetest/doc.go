// Package storetest proves that a [driver.Store] keeps its promises. The whole API is one call in a test of the store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Storage {
//			path := filepath.Join(t.TempDir(), "records")
//			return storetest.Storage{
//				Open: func(t *testing.T) driver.Store { return mystore.Open(path) },
//			}
//		})
//	}
//
// Run it under the race detector. Every check prints the promise it guards when it fails. The checks use two handles on
// one storage throughout, as two processes would.
//
// A store that is also a [driver.Seizer], [driver.Lister], [driver.Counter] or [driver.StepStore] is checked as such;
// what a store or its [Storage] can't do is logged once and left out. Time passes by [Storage].Advance where there is
// one, which is fast and exact; otherwise by waiting out leases of a few tenths of a second on the store's own clock.
//
// Two things are left to the store's author, since a store can be right in both ways: how it fails when it is out of
// room ([driver.ErrFull]), and that it reads a corrupt record as [driver.ErrUnreadable].
package storetest
