package replay

import (
	"maps"
	"net/http"
	"slices"
)

func solvedKeep(a *Answer) *Answer {
	if slices.Contains([]int{http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable}, a.Status) {
		return nil
	}
	h := a.Header.Clone()
	h.Del("Set-Cookie")
	return &Answer{a.Status, h, a.Body}
}

func solvedReplay(w http.ResponseWriter, a *Answer) {
	maps.Copy(w.Header(), a.Header)
	w.Header().Set("Idempotent-Replayed", "true")
	w.WriteHeader(a.Status)
	w.Write(a.Body) //nolint:errcheck // the client has gone
}
