// Package slab keeps many small things in few large pieces of memory that hold no pointers, so that the garbage
// collector has next to nothing to look at.
package slab

import "math/bits"

// A Ref names a thing in a slab. 0 names none.
type Ref uint32

// pageLen is how many things share a page of memory.
const pageLen = 128

// Of is a slab of values without pointers. The zero value is empty. A slab is not safe for concurrent changes.
type Of[T any] struct {
	pages  []page[T]
	open   []uint32 // the pages that have a free value
	vacant []uint32 // the pages that have no memory
}

// A page does not move, so pointers to its values stay right. Its memory is let go when none of them is in use.
type page[T any] struct {
	values *[pageLen]T
	free   [pageLen / 64]uint64 // a bit for each value that nobody has
	place  uint32               // 1 + its place among the open ones; 0 if it is not one of them
}

// New returns a zero value of its own.
func (s *Of[T]) New() Ref {
	if len(s.open) == 0 {
		s.grow()
	}
	at := s.open[len(s.open)-1]
	p := &s.pages[at]
	word := 0
	for p.free[word] == 0 {
		word++
	}
	bit := bits.TrailingZeros64(p.free[word])
	p.free[word] &^= 1 << bit
	if p.free == [pageLen / 64]uint64{} {
		s.shut(p)
	}
	return Ref(at)*pageLen + Ref(word*64+bit) + 1
}

// At returns the value that New gave out as r.
func (s *Of[T]) At(r Ref) *T { return &s.pages[(r-1)/pageLen].values[(r-1)%pageLen] }

// Free takes a value back, and clears it.
func (s *Of[T]) Free(r Ref) {
	at, i := uint32(r-1)/pageLen, (r-1)%pageLen
	p := &s.pages[at]
	var zero T
	p.values[i] = zero
	p.free[i/64] |= 1 << (i % 64)
	switch {
	case p.place == 0:
		s.open = append(s.open, at)
		p.place = uint32(len(s.open))
	case len(s.open) > 1 && p.free == allFree:
		s.shut(p)
		p.values = nil
		s.vacant = append(s.vacant, at)
	}
}

var allFree = [pageLen / 64]uint64{^uint64(0), ^uint64(0)}

// grow opens a page whose values are all free.
func (s *Of[T]) grow() {
	var at uint32
	if last := len(s.vacant) - 1; last >= 0 {
		at, s.vacant = s.vacant[last], s.vacant[:last]
	} else {
		at = uint32(len(s.pages))
		s.pages = append(s.pages, page[T]{})
	}
	s.open = append(s.open, at)
	s.pages[at] = page[T]{new([pageLen]T), allFree, uint32(len(s.open))}
}

// shut takes a page from the open ones.
func (s *Of[T]) shut(p *page[T]) {
	last := len(s.open) - 1
	moved := s.open[last]
	s.open[p.place-1], s.pages[moved].place = moved, p.place
	s.open, p.place = s.open[:last], 0
}
