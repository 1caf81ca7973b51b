package shop

import (
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
)

// A Problem is a refusal by the shop (RFC 9457). The guard's refusals have the same form.
type Problem struct {
	Type      string  `json:"type" format:"uri" doc:"The kind of problem: urn:shop:problem: and the code" example:"urn:shop:problem:out_of_stock"`
	Title     string  `json:"title" doc:"The status in words" example:"Conflict"`
	Status    int     `json:"status" minimum:"400" maximum:"599" doc:"The status of the answer" example:"409"`
	Code      string  `json:"code" doc:"The kind of problem, for programs" example:"out_of_stock"`
	Detail    string  `json:"detail,omitempty" doc:"What is wrong" example:"only 2 of book-1 are left"`
	Retryable bool    `json:"retryable" doc:"The same request may be sent again under the same key"`
	Operation string  `json:"operation,omitempty" doc:"Where to ask what became of the operation"`
	Errors    []Fault `json:"errors,omitempty" doc:"Each fault of the request"`
}

// A Fault is what is wrong with one field.
type Fault struct {
	Field   string `json:"field" doc:"Where it is" example:"body.amount"`
	Message string `json:"message" doc:"What is wrong with it" example:"expected integer"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (*Problem) ContentType(string) string { return "application/problem+json" }

// refuse returns a refusal that is kept: a repeat gets it too. The code is one of codes, in openapi.go.
func refuse(status int, code, detail string) *Problem {
	return (&Problem{Status: status, Code: code, Detail: detail}).filled()
}

// invalid refuses a request because of one of its fields.
func invalid(field, message string) *Problem {
	p := refuse(http.StatusBadRequest, "invalid", field+": "+message)
	p.Errors = []Fault{{field, message}}
	return p
}

// again returns a refusal after which the same request is worth sending again, under the same key.
func again(status int, code, detail string) *Problem {
	p := refuse(status, code, detail)
	p.Retryable = true
	return p
}

// reused refuses a key that has stood for another request, for a guard that has forgotten it.
func reused() *Problem {
	return refuse(http.StatusUnprocessableEntity, "key_reused", "the key has stood for another request: choose a new one")
}

// filled fills in what follows from code and status.
func (p *Problem) filled() *Problem {
	p.Type, p.Title = "urn:shop:problem:"+p.Code, http.StatusText(p.Status)
	return p
}

// A Refusal is the other form of refusals; see Options.SimpleErrors.
type Refusal struct {
	Success bool         `json:"success" enum:"false"`
	Error   RefusalError `json:"error"`
}

// A RefusalError says what is wrong.
type RefusalError struct {
	Code    string  `json:"code" doc:"The kind of problem, for programs" example:"out_of_stock"`
	Message string  `json:"message" doc:"What is wrong" example:"only 2 of book-1 are left"`
	Fields  []Fault `json:"fields,omitempty" doc:"Each fault of the request"`
}

func (p *Problem) simple() *Refusal {
	return &Refusal{Error: RefusalError{Code: p.Code, Message: p.Detail, Fields: p.Errors}}
}

// writeProblem is for what stands above the API.
func (s *Shop) writeProblem(w http.ResponseWriter, p *Problem) {
	var body any = p.filled()
	w.Header().Set("Content-Type", "application/problem+json")
	if s.o.SimpleErrors {
		w.Header().Set("Content-Type", "application/json")
		body = p.simple()
	}
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(body) //nolint:errcheck // the client has gone
}

// guardProblems has the guard's refusals in the form of the shop's.
func (o *Options) guardProblems() semel.ProblemOptions {
	const page = "/docs"
	if !o.SimpleErrors {
		return semel.ProblemOptions{Documentation: page}
	}
	return semel.ProblemOptions{Documentation: page, Write: func(w http.ResponseWriter, _ *http.Request, p *semel.Problem) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(p.Status)
		json.NewEncoder(w).Encode(Refusal{Error: RefusalError{Code: string(p.Code), Message: p.Detail}}) //nolint:errcheck // the client has gone
	}}
}

// newProblem makes problems of what huma has found wrong.
func newProblem(status int, detail string, errs ...error) huma.StatusError {
	p := &Problem{Status: status, Detail: detail, Code: "invalid"}
	switch {
	case status == http.StatusUnprocessableEntity:
		p.Status = http.StatusBadRequest // 422 is for a key that was used for another request
	case status >= 500:
		// None is kept: the same key runs it again, or the guard says that its outcome is not known.
		p.Code, p.Retryable = "internal", true
	}
	for _, err := range errs {
		if d, ok := err.(huma.ErrorDetailer); ok {
			p.Errors = append(p.Errors, Fault{d.ErrorDetail().Location, d.ErrorDetail().Message})
		} else if err != nil && status < 500 {
			p.Errors = append(p.Errors, Fault{Message: err.Error()})
		}
	}
	return p.filled()
}

// known refuses paths that mux does not have, and methods that a path does not have, in the form of the shop's
// refusals.
func (s *Shop) known(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		answer := unwritten{header: http.Header{}}
		mux.ServeHTTP(&answer, r)
		p := &Problem{Status: http.StatusNotFound, Code: "not_found", Detail: "there is nothing at " + r.URL.Path}
		if answer.status == http.StatusMethodNotAllowed {
			w.Header()["Allow"] = answer.header["Allow"]
			p = &Problem{Status: answer.status, Code: "not_allowed", Detail: r.URL.Path + " has no " + r.Method}
		}
		s.writeProblem(w, p)
	})
}

// unwritten is an answer of which only status and header matter.
type unwritten struct {
	header http.Header
	status int
}

func (u *unwritten) Header() http.Header         { return u.header }
func (u *unwritten) WriteHeader(status int)      { u.status = status }
func (u *unwritten) Write(b []byte) (int, error) { return len(b), nil }
