package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/semelhq/semel/examples/shop/host"
)

// A contract is the description of the API, which all that stages see has to agree with.
type contract struct {
	document map[string]any
	schemas  *jsonschema.Compiler
}

func newContract(text []byte) (*contract, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := &contract{document: document.(map[string]any), schemas: jsonschema.NewCompiler()}
	c.schemas.DefaultDraft(jsonschema.Draft2020)
	c.schemas.AssertFormat()
	return c, c.schemas.AddResource("openapi.json", document)
}

// broken says what an answer to a request has that the description does not, or nil.
func (c *contract) broken(r *http.Request, got *reply) error {
	path, at := c.path(r.URL.Path)
	if path == "" {
		if got.Status == http.StatusNotFound || got.Status == http.StatusUnauthorized {
			return nil
		}
		return fmt.Errorf("%s is not described", r.URL.Path)
	}
	operation, ok := at[strings.ToLower(r.Method)].(map[string]any)
	if !ok {
		if got.Status == http.StatusMethodNotAllowed || got.Status == http.StatusUnauthorized {
			return nil
		}
		return fmt.Errorf("%s %s is not described", r.Method, path)
	}
	responses := operation["responses"].(map[string]any)
	status := strconv.Itoa(got.Status)
	if responses[status] == nil && responses["default"] != nil {
		status = "default"
	}
	where := "/paths/" + escape(path) + "/" + strings.ToLower(r.Method) + "/responses/" + status
	response, where := c.resolve(responses[status], where)
	if response == nil {
		return fmt.Errorf("%s %s: the status %s is not described", r.Method, path, got)
	}
	headers, _ := response["headers"].(map[string]any)
	for name, values := range got.Header {
		if slices.Contains(ofHTTP, name) {
			continue
		}
		declared := slices.Collect(func(yield func(string) bool) {
			for n := range headers {
				if http.CanonicalHeaderKey(n) == name && !yield(n) {
					return
				}
			}
		})
		if len(declared) == 0 {
			return fmt.Errorf("%s %s %d: the header %s: %s is not described", r.Method, path, got.Status, name, values)
		}
		header, whereHeader := c.resolve(headers[declared[0]], where+"/headers/"+declared[0])
		if schema, ok := header["schema"].(map[string]any); ok {
			var value any = values[0]
			if schema["type"] == "integer" {
				value = json.Number(values[0])
			}
			if err := c.validate(whereHeader+"/schema", value); err != nil {
				return fmt.Errorf("%s %s %d: the header %s: %w", r.Method, path, got.Status, name, err)
			}
		}
	}
	if len(got.Body) == 0 {
		return nil
	}
	media, _, err := mime.ParseMediaType(got.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	content, _ := response["content"].(map[string]any)
	if content[media] == nil {
		return fmt.Errorf("%s %s %d: the media type %s is not described", r.Method, path, got.Status, media)
	}
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(got.Body))
	if err != nil {
		return err
	}
	if err := c.validate(where+"/content/"+escape(media)+"/schema", body); err != nil {
		return fmt.Errorf("%s %s %s: %w", r.Method, path, got, err)
	}
	return nil
}

// ofHTTP are headers that no API describes.
var ofHTTP = []string{"Content-Length", "Content-Type", "Date"}

// path returns the described path that a request's path is of: the one with the fewest parameters.
func (c *contract) path(actual string) (path string, at map[string]any) {
	parts := strings.Split(actual, "/")
	for template, item := range c.document["paths"].(map[string]any) {
		matches := slices.EqualFunc(strings.Split(template, "/"), parts, func(t, part string) bool {
			return t == part || strings.HasPrefix(t, "{") && part != ""
		})
		if matches && (path == "" || strings.Count(template, "{") < strings.Count(path, "{")) {
			path, at = template, item.(map[string]any)
		}
	}
	return path, at
}

// resolve follows a reference. where is the place of what is returned.
func (c *contract) resolve(v any, where string) (map[string]any, string) {
	m, _ := v.(map[string]any)
	ref, ok := m["$ref"].(string)
	if !ok {
		return m, where
	}
	at := any(c.document)
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[part]
	}
	return at.(map[string]any), strings.TrimPrefix(ref, "#")
}

func (c *contract) validate(where string, v any) error {
	schema, err := c.schemas.Compile("openapi.json#" + where)
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

func escape(part string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(part)
}

func TestWhatIsAnsweredIsWhatIsDescribed(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{})
	answer := s.call(0, "GET", "/operations/nothing", "", nil, nil)
	r := httptest.NewRequest("GET", "/api/v1/operations/nothing", nil)
	for name, change := range map[string]func(*http.Request, *reply){
		"status": func(_ *http.Request, a *reply) { a.Status = http.StatusTeapot },
		"header": func(_ *http.Request, a *reply) { a.Header.Set("X-Other", "1") },
		"value":  func(_ *http.Request, a *reply) { a.Header.Set("Idempotency-Code", "OTHER") },
		"body": func(_ *http.Request, a *reply) {
			a.Body = []byte(`{"type":"urn:x","title":"","status":404,"code":"other","retryable":false}`)
		},
		"member": func(_ *http.Request, a *reply) {
			a.Body = bytes.Replace(a.Body, []byte(`"title"`), []byte(`"titel"`), 1)
		},
		"media type":     func(_ *http.Request, a *reply) { a.Header.Set("Content-Type", "text/plain") },
		"path":           func(r *http.Request, a *reply) { r.URL.Path, a.Status = "/api/v1/unknown", 200 },
		"method of path": func(r *http.Request, a *reply) { r.Method, a.Status = "POST", 200 },
	} {
		request, changed := r.Clone(t.Context()), &reply{Status: answer.Status, Header: answer.Header.Clone(), Body: answer.Body}
		if err := s.contract.broken(request, changed); err != nil {
			t.Fatal(err)
		}
		change(request, changed)
		if s.contract.broken(request, changed) == nil {
			t.Errorf("another %s is not noticed", name)
		}
	}
}

func TestTheDescriptionIsServedInEachForm(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{})
	printed, err := s.host.Shops[0].OpenAPI()
	must(t, err)
	for path, want := range map[string]string{
		"/openapi.json": string(printed), "/openapi.yaml": "openapi: 3.1.0", "/openapi-3.0.json": `"openapi":"3.0.3"`,
		"/docs": `<details id="create-order">`,
	} {
		res, err := http.Get(s.urls[0] + path)
		must(t, err)
		text, err := io.ReadAll(res.Body)
		must(t, errors.Join(err, res.Body.Close()))
		if res.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %.500s", path, res.StatusCode, text)
		}
		if path == "/docs" && (bytes.Contains(text, []byte("//")) || !strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'")) {
			t.Errorf("the page needs something from elsewhere: %s", text)
		}
	}
}

// Each call that takes a key says so, and which answers the guard may give.
func TestEachProtectedCallDeclaresItsKey(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{})
	protected := 0
	for path, item := range s.contract.document["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			o := operation.(map[string]any)
			if o["operationId"] == nil || o["summary"] == nil || len(o["tags"].([]any)) != 1 {
				t.Errorf("%s %s has no id, no summary, or no tag: %v", method, path, o)
			}
			text, err := json.Marshal(o)
			must(t, err)
			if method != "post" && method != "patch" || !bytes.Contains(text, []byte("parameters/Idempotency-Key")) {
				continue
			}
			protected++
			for _, want := range []string{"headers/Idempotent-Replayed", `"409"`, `"422"`, `"425"`, `"429"`, `"503"`} {
				if !bytes.Contains(text, []byte(want)) {
					t.Errorf("%s %s has no %s", method, path, want)
				}
			}
		}
	}
	if protected == 0 {
		t.Error("no call takes a key")
	}
}

func TestARefusalHasTheChosenForm(t *testing.T) {
	t.Parallel()
	for _, simple := range []bool{false, true} {
		t.Run(fmt.Sprintf("simple=%v", simple), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, host.Config{SimpleErrors: simple})
			key, order := s.newKey(), `{"lines":[{"product":"book-1","quantity":1}]}`
			if r := s.call(0, "POST", "/orders", key, order, nil); r.Status != http.StatusCreated {
				t.Fatal(r)
			}
			none := http.Header{"Authorization": {}}
			for code, got := range map[string]*reply{
				"IDEMPOTENCY_KEY_REQUIRED 400":        s.call(0, "POST", "/orders", "", order, nil),
				"IDEMPOTENCY_KEY_REUSED 422":          s.call(0, "POST", "/orders", key, `{"lines":[]}`, nil),
				"IDEMPOTENCY_OPERATION_NOT_FOUND 404": s.call(0, "GET", "/operations/unknown", "", nil, nil),
				"invalid 400":                         s.call(0, "POST", "/orders", s.newKey(), `{"lines":[]}`, nil),
				"invalid 415":                         s.call(0, "POST", "/orders", s.newKey(), order, http.Header{"Content-Type": {"text/csv"}}),
				"order_not_found 404":                 s.call(0, "GET", "/orders/0198c2e0-0000-7000-8000-000000000000", "", nil, nil),
				"out_of_stock 409":                    s.call(0, "POST", "/orders", s.newKey(), `{"lines":[{"product":"book-1","quantity":1000}]}`, nil),
				"unauthorized 401":                    s.call(0, "POST", "/orders", s.newKey(), order, none),
				"not_found 404":                       s.call(0, "GET", "/unknown", "", nil, nil),
				"not_allowed 405":                     s.call(0, "TRACE", "/orders", "", nil, nil),
			} {
				code, status, _ := strings.Cut(code, " ")
				media, form := "application/problem+json", `^\{"type":"urn:(shop|semel):problem:[a-z_-]+","title":"[^"]+","status":`+status+`,.*"code":"`+code+`"`
				if strings.HasPrefix(code, "IDEMPOTENCY") {
					form = strings.Replace(form, "(shop|semel)", "semel", 1)
				}
				if simple {
					media, form = "application/json", `^\{"success":false,"error":\{"code":"`+code+`","message":"[^"]+"`
				}
				if strconv.Itoa(got.Status) != status || got.Header.Get("Content-Type") != media || !regexp.MustCompile(form).Match(got.Body) {
					t.Errorf("%s: %s %s\nwant %s", code, got.Header.Get("Content-Type"), got, form)
				}
				if (got.Header.Get("Idempotency-Code") == code) != strings.HasPrefix(code, "IDEMPOTENCY") {
					t.Errorf("%s: Idempotency-Code: %s", code, got.Header.Get("Idempotency-Code"))
				}
				if code == "IDEMPOTENCY_KEY_REQUIRED" && !strings.Contains(got.Header.Get("Link"), `rel="describedby"`) {
					t.Errorf("%s: Link: %s", code, got.Header.Get("Link"))
				}
			}
		})
	}
}
