package semeltest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// marker is the default of semel.Options.ReplayMarkers.
const marker = "Idempotent-Replayed"

const (
	atOnce  = 10
	repeats = 3
)

// AssertOnce proves that a request takes effect once. It sends the request ten times at once and then three times more,
// each made by newRequest, with the same key, and fails the test unless one of them ran, the others at once were told
// that it is in progress or got its answer, and each of the last three got its answer again: the same status and bytes,
// marked with Idempotent-Replayed. effects returns how many effects there have been; it must have grown by one.
//
// It is for requests whose answer is kept. It returns whether all was well.
func AssertOnce(t testing.TB, h http.Handler, newRequest func() *http.Request, effects func() int) bool {
	t.Helper()
	before := effects()
	var (
		answers = make([]*httptest.ResponseRecorder, atOnce)
		ready   = make(chan struct{})
		wg      sync.WaitGroup
	)
	for i := range answers {
		r := newRequest()
		answers[i] = httptest.NewRecorder()
		wg.Go(func() {
			<-ready
			h.ServeHTTP(answers[i], r)
		})
	}
	close(ready)
	wg.Wait()

	ok := true
	fail := func(format string, a ...any) {
		t.Helper()
		t.Errorf("semeltest: "+format, a...)
		ok = false
	}
	var first *httptest.ResponseRecorder
	runs := 0
	for _, w := range answers {
		if w.Header().Get(marker) == "" && !inProgress(w) {
			first = w
			runs++
		}
	}
	switch {
	case runs == 0:
		fail("%d requests at once: none was the first", atOnce)
		return false
	case runs > 1:
		fail("%d requests at once: %d ran, want 1", atOnce, runs)
	}
	for range repeats {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, newRequest())
		answers = append(answers, w)
	}
	for i, w := range answers {
		switch {
		case w == first, i < atOnce && inProgress(w):
		case w.Header().Get(marker) == "":
			fail("request %d of %d: not marked with %s: %s", i+1, len(answers), marker, text(w))
		case w.Code != first.Code || !bytes.Equal(w.Body.Bytes(), first.Body.Bytes()):
			fail("request %d of %d: got %s, want the first answer, %s", i+1, len(answers), text(w), text(first))
		}
	}
	if n := effects() - before; n != 1 {
		fail("%d effects, want 1", n)
	}
	return ok
}

// inProgress reports whether an answer is the guard's 409.
func inProgress(w *httptest.ResponseRecorder) bool {
	return w.Code == http.StatusConflict && w.Header().Get("Retry-After") != "" &&
		bytes.Contains(w.Body.Bytes(), []byte("IDEMPOTENCY_IN_PROGRESS"))
}

func text(w *httptest.ResponseRecorder) string {
	return fmt.Sprintf("%d %.200q", w.Code, w.Body)
}
