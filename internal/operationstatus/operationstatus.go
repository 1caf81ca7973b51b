// Package operationstatus says what the principal of an operation is told of it.
package operationstatus

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// States of an operation, as its principal sees them. Clients rely on them: each state but running says that the
// operation has ended.
const (
	Running   = "running"
	Succeeded = "succeeded"
	Failed    = "failed"
	Unknown   = "unknown"
	Expired   = "expired"
)

// A Status is the part of an operation that is shown. It holds nothing that only operators may see, and not the key.
type Status struct {
	ID        string    `json:"id"`
	State     string    `json:"state"`
	Detail    string    `json:"detail,omitempty"`
	Retryable bool      `json:"retryable,omitempty"` // with the same key
	Attempts  uint32    `json:"attempts,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	Expires   time.Time `json:"expires,omitzero"` // until when a repeat gets the same answer
	Result    *Result   `json:"result,omitempty"`
	Links     Links     `json:"links"`
}

// A Result is how an operation has ended.
type Result struct {
	Status   int    `json:"status"`
	Location string `json:"location,omitempty"`
	Href     string `json:"href"`
}

// Links are where more is told of an operation.
type Links struct {
	Self   string `json:"self"`
	Result string `json:"result"`
}

// Write answers with the status of an operation.
func (s *Status) Write(w http.ResponseWriter, status int) {
	body, err := json.Marshal(s)
	if err != nil {
		panic("semel: marshal operation: " + err.Error()) // strings, ints and times of this era can always be marshalled
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone; nobody is left to tell
}
