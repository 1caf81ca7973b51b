package replay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
)

// Check says what is wrong with Keep and Replay, or nil.
func Check(_ context.Context, solution bool) error {
	keep, replay := Keep, Replay
	if solution {
		keep, replay = solvedKeep, solvedReplay
	}
	first := &Answer{http.StatusCreated, http.Header{"Location": {"/orders/1"}, "Set-Cookie": {"session=secret"}}, []byte(`{"id":1}`)}
	kept := keep(first)
	if kept == nil {
		return errors.New("a 201 was not kept: the repeat would make another order")
	}
	w := httptest.NewRecorder()
	replay(w, kept)
	switch h := w.Header(); {
	case w.Code != http.StatusCreated:
		return fmt.Errorf("the first answer was 201, and the repeat got %d", w.Code)
	case h.Get("Location") != "/orders/1":
		return errors.New("the first answer had a Location, and the repeat has none: its client can't find the order")
	case h.Get("Set-Cookie") != "":
		return errors.New("the repeat got the Set-Cookie of the first answer: whoever knows the key has the session")
	case h.Get("Idempotent-Replayed") != "true":
		return errors.New("the repeat is not marked with Idempotent-Replayed: true")
	case w.Body.String() != `{"id":1}`:
		return fmt.Errorf("the repeat got the body %s", w.Body)
	}
	for status, kept := range map[int]bool{200: true, 402: true, 404: true, 401: false, 429: false, 503: false} {
		if got := keep(&Answer{Status: status, Header: http.Header{}}) != nil; got != kept {
			return fmt.Errorf("an answer with %d: kept is %v, and should be %v", status, got, kept)
		}
	}
	return nil
}
