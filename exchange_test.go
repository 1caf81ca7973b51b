package semel_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// Requests that run nothing use the same memory, one after another. What a layer above keeps of an answer stays as it
// was.
func TestAKeptAnswerIsNotChangedByLaterRequests(t *testing.T) {
	t.Parallel()
	const n = 20
	h, _, _ := minted(t, semel.Policy{})
	var headers []http.Header
	for i := range 2 * n {
		headers = append(headers, answer(h, post(fmt.Sprint("key-", i/2), "{}")).Header())
	}
	seen := map[string]bool{}
	for i, header := range headers {
		if key := fmt.Sprint("key-", i/2); !slices.Equal(header["Idempotency-Key"], []string{key}) {
			t.Errorf("the answer to request %d has now the keys %q, want %q", i, header["Idempotency-Key"], key)
		}
		if marker := header.Get("Idempotent-Replayed"); (marker == "true") != (i%2 == 1) {
			t.Errorf("the answer to request %d is now marked %q", i, marker)
		}
		id := header.Get("X-Correlation-Id")
		if seen[id] {
			t.Errorf("the answer to request %d has now the correlation id of another", i)
		}
		seen[id] = true
	}
}

// Nor does the body that a function of the user was shown.
func TestAKeptBodyIsNotChangedByLaterRequests(t *testing.T) {
	t.Parallel()
	var kept [][]byte
	h, _, _ := minted(t, semel.Policy{Mint: func(r *http.Request, body []byte) (string, error) {
		kept = append(kept, body)
		return orderKey(r, body)
	}})
	body := func(i int) string { return fmt.Sprintf(`{"order":%d}`, 10+i/2) }
	for i := range 40 {
		answer(h, post("", body(i)))
	}
	for i := range kept {
		if got := string(kept[i]); got != body(i) {
			t.Errorf("the body of request %d has become %s", i, got)
		}
	}
}

// A handler that reads on after it has returned, with the guard or past it, never sees the body of a later request.
func TestALateReaderNeverSeesAnotherBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy semel.Policy
		key    string
	}{
		"run":      {key: "late"},
		"bypassed": {policy: semel.Policy{KeyOptional: true, KeyField: "/key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const mine, other = "mine", "theirs"
			payload := func(whose string) string { return `{"note":"` + strings.Repeat(whose+" ", 24/len(whose)) + `"}` }
			var late io.ReadCloser
			g, _ := newGuard(t, nil, c.policy)
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if late == nil {
					late = r.Body
					return
				}
				// The later request's body is open now.
				if read, err := io.ReadAll(late); strings.Contains(string(read), other) {
					t.Errorf("read %q of a later request, error %v", read, err)
				}
			}))
			answer(h, post(c.key, payload(mine)))
			for i := range 5 { // each runs once, is refused and is replayed
				answer(h, post(fmt.Sprint("k-", i), payload(other)))
				answer(h, post(fmt.Sprint("k-", i), payload(mine)))
				answer(h, post(fmt.Sprint("k-", i), payload(other)))
			}
		})
	}
}

// An exchange that was refused while its body was read leaves nothing to the next one.
func TestAFailedBodyLeavesNothing(t *testing.T) {
	t.Parallel()
	h, l, _ := minted(t, semel.Policy{})
	for i := range 10 {
		key, body := fmt.Sprint("key-", i), fmt.Sprintf(`{"n":%d}`, i)
		broken := post(key, "")
		broken.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"n":`), iotest.ErrReader(io.ErrUnexpectedEOF)))
		wantProblem(t, answer(h, broken), http.StatusBadRequest, refusal.RequestUnreadable)
		for repeat := range 3 {
			wantAnswer(t, answer(h, post(key, body)), http.StatusOK, key+" "+body, repeat > 0)
		}
	}
	if n := l.count(); n != 10 {
		t.Errorf("the handler ran %d times, want 10", n)
	}
}
