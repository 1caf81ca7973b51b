package shop

// What the description of the API says about every call: the key, the headers of the guard, and refusals. huma adds
// what it finds in the types of inputs and outputs.

import (
	"cmp"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel/refusal"
)

// codes are those of the shop's own refusals. Clients go by them, so they never change their meaning.
var codes = []string{
	"changed",
	"charge_exists",
	"charge_not_found",
	"declined",
	"illegal_move",
	"intent_ended",
	"intent_exists",
	"intent_expired",
	"intent_in_progress",
	"intent_not_found",
	"internal",
	"invalid",
	"no_answer_from_processor",
	"key_reused",
	"not_allowed",
	"not_found",
	"order_deleted",
	"order_exists",
	"order_not_found",
	"order_not_pending",
	"order_placed",
	"out_of_stock",
	"payment_in_progress",
	"payment_not_found",
	"payment_not_paid",
	"payment_not_prepared",
	"points_out_of_range",
	"precondition_required",
	"price_not_found",
	"refund_too_large",
	"refused_by_processor",
	"saga_not_found",
	"unauthorized",
}

// guardCodes are those of the guard's refusals: see docs/codes.md.
var guardCodes = []refusal.Code{
	refusal.KeyMissing, refusal.KeyInvalid, refusal.ScopeInvalid, refusal.KeyReused, refusal.InProgress, refusal.OutcomePending,
	refusal.OutcomeUnknown, refusal.NoAnswer, refusal.ReplayUnavailable, refusal.KeyExpired, refusal.TooManyAttempts, refusal.BodyTooLarge,
	refusal.DigestMismatch, refusal.EarlyData, refusal.RequestUnreadable, refusal.OperationNotFound, refusal.StoreUnavailable,
}

// tags say what there is.
var tags = map[string]string{
	"orders":     "What somebody wants to have.",
	"intents":    "Payments in two steps: the money is held, then taken or let go of.",
	"sagas":      "What takes several services, and is done or taken back.",
	"payments":   "Money that is held, taken and given back.",
	"charges":    "Amounts that are charged to accounts, under names of the client's.",
	"pricing":    "What things cost.",
	"messages":   "What the shop tells others, and what nobody could handle.",
	"bulk":       "Many items at once.",
	"points":     "What customers collect: a ledger for each account.",
	"operations": "What became of requests that were sent with a key, also for a client that has lost the answer.",
}

// What every call may be refused with, and what those that have a body or a key may be refused with too.
var (
	anyRefusals   = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusInternalServerError}
	bodyRefusals  = []int{http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType}
	keyedRefusals = []int{
		http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooEarly,
		http.StatusTooManyRequests, http.StatusServiceUnavailable,
	}
)

// components describes what calls share.
func (s *Shop) components(c *huma.Components) {
	text := func(doc string, example any) *huma.Header {
		return &huma.Header{Description: doc, Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{example}}}
	}
	yes := text("Marks an answer that was given before.", "true")
	yes.Schema.Enum = []any{"true"}
	no := text("Marks a failure that is kept: a repeat gets it too.", "false")
	no.Schema.Enum = []any{"false"}
	code := text("Names a refusal by the guard. No other answer has it.", refusal.KeyReused)
	code.Schema.Enum = anys(guardCodes)
	c.Headers = map[string]*huma.Header{
		"Idempotency-Key":       text("The key of the request, as it was sent.", `"9b2f0a52-8b0d-4f2c-9c0e-0a1d6f9f7c11"`),
		"Idempotent-Replayed":   yes,
		"Idempotency-Expires":   text("Until when a repeat gets the same answer.", "Mon, 30 Nov 2026 12:00:00 GMT"),
		"Idempotency-Retryable": no,
		"Idempotency-Code":      code,
		"X-Correlation-Id":      text("The request's own, or a new one. It is the same in logs and messages.", "6f1d9c0b7a534e0f8b2f4f3f3a1b2c4d"),
		"Cache-Control":         text("Answers to requests with a key are not for caches.", "no-store"),
		"Link":                  text("The page about idempotency, or the operation.", `</docs>; rel="describedby"`),
		"WWW-Authenticate":      text("What is missing.", `Bearer realm="shop"`),
		"Retry-After":           {Description: "When to ask again, in seconds.", Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: ptr(0.0), Examples: []any{1}}},
	}
	c.Parameters = map[string]*huma.Param{
		"Idempotency-Key": {
			Name: "Idempotency-Key", In: "header", Required: true,
			Description: "Names the operation: the same in each attempt, new for each new wish. A repeat gets the first answer. " +
				"A string in quotes (RFC 9651), or 1 to 255 visible ASCII characters without quote, backslash, comma and semicolon.",
			Schema: &huma.Schema{Type: huma.TypeString, MinLength: ptr(1), MaxLength: ptr(512)},
			Examples: map[string]*huma.Example{
				"quoted": {Summary: "A UUID as a structured field", Value: `"9b2f0a52-8b0d-4f2c-9c0e-0a1d6f9f7c11"`},
				"bare":   {Summary: "The same key, as many clients send it", Value: "9b2f0a52-8b0d-4f2c-9c0e-0a1d6f9f7c11"},
			},
		},
	}
	c.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	fields := c.Schemas.Map()["Problem"].Properties
	if s.o.SimpleErrors {
		c.Schemas.Schema(reflect.TypeFor[Refusal](), true, "Refusal")
		fields = c.Schemas.Map()["RefusalError"].Properties
	}
	fields["code"].Enum = append(anys(codes), anys(guardCodes)...)
	c.Responses = map[string]*huma.Response{}
}

// joined makes one word of a text.
var joined = strings.NewReplacer(" ", "", "-", "")

// refusal refers to the shared response with a status.
func (s *Shop) refusal(status int) *huma.Response {
	all, name := s.api.OpenAPI().Components.Responses, joined.Replace(http.StatusText(status))
	if all[name] == nil {
		headers := refs("Idempotency-Code", "Idempotency-Key", "Idempotent-Replayed", "Idempotency-Expires", "X-Correlation-Id", "Cache-Control", "Link")
		switch {
		case status == http.StatusUnauthorized:
			headers = refs("WWW-Authenticate")
		case status == http.StatusConflict || status == http.StatusTooManyRequests:
			maps.Copy(headers, refs("Retry-After"))
		case status >= http.StatusInternalServerError:
			maps.Copy(headers, refs("Retry-After", "Idempotency-Retryable"))
		}
		media, schema := "application/problem+json", "Problem"
		if s.o.SimpleErrors {
			media, schema = "application/json", "Refusal"
		}
		all[name] = &huma.Response{Description: http.StatusText(status), Headers: headers, Content: map[string]*huma.MediaType{
			media: {Schema: &huma.Schema{Ref: "#/components/schemas/" + schema}, Example: s.example(status)},
		}}
	}
	return &huma.Response{Ref: "#/components/responses/" + name}
}

// examples are refusals by status. The guard's have the short name of their type.
var examples = map[int]struct{ code, slug, title, detail string }{
	http.StatusBadRequest:            {string(refusal.KeyMissing), "key-missing", "an idempotency key is required", "send one, and the same one with each attempt"},
	http.StatusUnauthorized:          {code: "unauthorized", detail: "the header Authorization has no bearer token"},
	http.StatusPaymentRequired:       {code: "declined", detail: "the bank declines the card"},
	http.StatusForbidden:             {code: "unauthorized", detail: "the operation is another user's"},
	http.StatusNotFound:              {code: "order_not_found", detail: "there is no such order"},
	http.StatusConflict:              {string(refusal.InProgress), "request-in-progress", "a request with this idempotency key is in progress", "ask again after the time in Retry-After"},
	http.StatusPreconditionFailed:    {code: "changed", detail: "the order has changed since"},
	http.StatusRequestEntityTooLarge: {string(refusal.BodyTooLarge), "body-too-large", "the request's body is too large", "it is above 65536 bytes"},
	http.StatusUnprocessableEntity: {
		string(refusal.KeyReused), "key-reused", "the idempotency key was used with another request",
		"a key stands for one request: send the first one again, or choose a new key",
	},
	http.StatusTooEarly:             {string(refusal.EarlyData), "early-data", "the request came as early data; send it again after the handshake", "early data can be sent again by others (RFC 8470)"},
	http.StatusPreconditionRequired: {code: "precondition_required", detail: "say in If-Match which version is to be changed"},
	http.StatusTooManyRequests:      {string(refusal.TooManyAttempts), "too-many-attempts", "too many attempts with this idempotency key", "ask again after the time in Retry-After"},
	http.StatusInternalServerError:  {code: "internal", detail: "unexpected error occurred"},
	http.StatusBadGateway:           {code: "no_answer_from_processor", detail: "the card processor does not answer: send the same request again"},
	http.StatusServiceUnavailable:   {string(refusal.StoreUnavailable), "store-unavailable", "the request was not run, because its key could not be checked", "ask again after the time in Retry-After"},
}

// example is a refusal with a status.
func (s *Shop) example(status int) any {
	e := examples[status]
	p := refuse(status, cmp.Or(e.code, "invalid"), cmp.Or(e.detail, "the request is not as it should be"))
	if e.slug != "" {
		p.Type, p.Title = "urn:semel:problem:"+e.slug, e.title
	}
	p.Retryable = status >= http.StatusInternalServerError ||
		slices.Contains([]int{http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}, status)
	if s.o.SimpleErrors {
		return p.simple()
	}
	return p
}

// describe says how a call is refused, and what stands in the headers of its answers.
func (s *Shop) describe(op *huma.Operation, c *call) {
	status := cmp.Or(c.status, http.StatusOK)
	success, refusals := &huma.Response{Description: http.StatusText(status), Headers: map[string]*huma.Header{}}, slices.Concat(anyRefusals, c.refusals)
	op.Responses = map[string]*huma.Response{strconv.Itoa(status): success}
	if op.Method != http.MethodGet && op.Method != http.MethodDelete {
		refusals = append(refusals, bodyRefusals...)
	}
	if c.once != nil {
		refusals = append(refusals, keyedRefusals...)
		op.Parameters = append(op.Parameters, &huma.Param{Ref: "#/components/parameters/Idempotency-Key"})
		success.Headers = refs("Idempotency-Key", "Idempotent-Replayed", "Idempotency-Expires", "X-Correlation-Id", "Cache-Control")
		if c.once.RespondAsync {
			op.Parameters = append(op.Parameters, prefer)
			op.Responses["202"] = s.accepted()
		}
	}
	for _, status := range refusals {
		if status >= http.StatusBadRequest {
			op.Responses[strconv.Itoa(status)] = s.refusal(status)
		}
	}
}

// describeOthers describes the other successes of a call: they are like the first one, but for those that have no body.
func (s *Shop) describeOthers(op *huma.Operation, c *call) {
	success := *op.Responses[strconv.Itoa(cmp.Or(c.status, http.StatusOK))]
	for _, status := range c.refusals {
		if status >= http.StatusBadRequest {
			continue
		}
		other := success
		if other.Description = http.StatusText(status); status == http.StatusNotModified || status == http.StatusNoContent {
			other.Content = nil
		}
		op.Responses[strconv.Itoa(status)] = &other
	}
}

// described returns the description of a call that huma has registered.
func (s *Shop) described(method, path string) *huma.Operation {
	p := s.api.OpenAPI().Paths[path]
	return map[string]*huma.Operation{
		http.MethodGet: p.Get, http.MethodPost: p.Post, http.MethodPut: p.Put, http.MethodPatch: p.Patch, http.MethodDelete: p.Delete,
	}[method]
}

// refs refers to shared headers.
func refs(names ...string) map[string]*huma.Header {
	all := map[string]*huma.Header{}
	for _, name := range names {
		all[name] = &huma.Header{Ref: "#/components/headers/" + name}
	}
	return all
}

// anys is for schemas.
func anys[T ~string](values []T) (all []any) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}
