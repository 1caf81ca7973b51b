package gateway

import "strings"

// nearest returns the name that somebody probably meant who wrote another one, or "" if none is near.
func nearest(wrote string, names []string) string {
	wrote = strings.ReplaceAll(strings.ToLower(wrote), "-", "_")
	best, least := "", max(1, len(wrote)/3)+1
	for _, name := range names {
		if d := distance(wrote, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance counts the bytes to be put in, taken out or replaced, or neighbours to be exchanged, to make b of a.
func distance(a, b string) int {
	var before, last []int // the two rows above
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
