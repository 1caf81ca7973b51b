package shop

// Status. Whoever has lost an answer asks what became of the operation, by its id or by its key, instead of guessing.
// The guard answers: it knows the states of all operations, those that take long and run without a client too.

import (
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// An Operation is what became of a request with a key, as the guard tells it.
type Operation struct {
	ID        string           `json:"id"`
	State     string           `json:"state" enum:"running,succeeded,failed,unknown,expired"`
	Detail    string           `json:"detail,omitempty"`
	Retryable bool             `json:"retryable,omitempty" doc:"The same request may be sent again under the same key"`
	Attempts  int64            `json:"attempts,omitempty"`
	Created   time.Time        `json:"created,omitzero"`
	Started   time.Time        `json:"started,omitzero"`
	Ended     time.Time        `json:"ended,omitzero"`
	Expires   time.Time        `json:"expires,omitzero" doc:"Until when a repeat gets the same answer"`
	Result    *OperationResult `json:"result,omitempty"`
	Links     OperationLinks   `json:"links"`
}

// An OperationResult is how an operation has ended.
type OperationResult struct {
	Status   int    `json:"status" doc:"The status of the stored answer" example:"201"`
	Location string `json:"location,omitempty" doc:"That of the stored answer"`
	Href     string `json:"href" doc:"Where the stored answer is"`
}

// OperationLinks are where to ask.
type OperationLinks struct {
	Self   string `json:"self"`
	Result string `json:"result"`
}

// operations serves questions about operations, and describes them: huma does not know the guard's handler.
func (s *Shop) operations(mux *http.ServeMux) {
	served := s.guard.Operations()
	mux.Handle("GET "+base+"/operations", served)
	mux.Handle("GET "+base+"/operations/{id}", served)
	mux.Handle("GET "+base+"/operations/{id}/result", served)
	status := &huma.Response{
		Description: "What became of it", Headers: refs("Retry-After", "Idempotency-Expires", "Idempotency-Key", "X-Correlation-Id", "Cache-Control"),
		Content: map[string]*huma.MediaType{"application/json": {Schema: s.operationSchema()}},
	}
	id := &huma.Param{Name: "id", In: "path", Required: true, Description: "The operation's id", Schema: &huma.Schema{Type: huma.TypeString}}
	s.describeQuestion("find-operation", "/operations", "Find an operation by its key", status, &huma.Param{Ref: "#/components/parameters/Idempotency-Key"})
	s.describeQuestion("get-operation", "/operations/{id}", "Ask what became of an operation", status, id)
	stored := refs("Idempotent-Replayed", "Idempotency-Expires", "X-Correlation-Id", "Cache-Control")
	for _, name := range []string{"ETag", "Location"} {
		stored[name] = &huma.Header{Description: "That of the stored answer", Schema: &huma.Schema{Type: huma.TypeString}}
	}
	s.describeQuestion("get-operation-result", "/operations/{id}/result", "Get the stored answer of an operation", &huma.Response{
		Description: "The answer, with the status it had", Headers: stored,
		Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{}}},
	}, id)
}

func (s *Shop) operationSchema() *huma.Schema {
	return s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Operation](), true, "Operation")
}

func (s *Shop) describeQuestion(id, path, summary string, success *huma.Response, param *huma.Param) {
	c := call{refusals: []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable}}
	op := &huma.Operation{OperationID: id, Method: http.MethodGet, Path: base + path, Summary: summary, Tags: []string{"operations"}}
	s.describe(op, &c)
	op.Parameters = append(op.Parameters, param)
	key := "200"
	if id == "get-operation-result" {
		delete(op.Responses, key)
		key = "default"
	}
	op.Responses[key] = success
	s.api.OpenAPI().AddOperation(op)
}

// prefer is how a client says that it does not wait.
var prefer = &huma.Param{
	Name: "Prefer", In: "header", Description: "respond-async: answer 202 at once, and go on without the client (RFC 7240).",
	Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{"respond-async"}},
}

// accepted is the answer to a client that does not wait.
func (s *Shop) accepted() *huma.Response {
	h := refs("Idempotency-Key", "X-Correlation-Id", "Cache-Control", "Retry-After")
	h["Location"] = &huma.Header{Description: "Where to ask what became of it", Schema: &huma.Schema{Type: huma.TypeString, Format: "uri-reference"}}
	h["Preference-Applied"] = &huma.Header{Description: "The client's wish was heard", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"respond-async"}}}
	return &huma.Response{Description: "It goes on without the client", Headers: h, Content: map[string]*huma.MediaType{"application/json": {Schema: s.operationSchema()}}}
}
