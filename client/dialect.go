package client

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Dialect is what a vendor's API, or a standard, says of keys and of the answers to them. The zero value has the
// rules for every server.
type Dialect struct {
	header   string
	field    string // of a JSON body, that holds the key in place of a header
	bare     bool
	maxAge   time.Duration
	classify func(a *Answer) Verdict
}

// Stripe is how Stripe wants keys, and answers to them: https://docs.stripe.com/api/idempotent_requests.
func Stripe() Dialect {
	return Dialect{bare: true, classify: func(a *Answer) Verdict {
		var body struct{ Error struct{ Type, Code string } }
		readBody(a, &body)
		again := a.Header.Get("Stripe-Should-Retry")
		switch {
		case body.Error.Code == "idempotency_key_in_use":
			return VerdictInProgress
		case body.Error.Type == "idempotency_error":
			return VerdictReused
		case again == "true":
			return VerdictRetry
		case slices.Contains([]int{400, 402, 404}, a.Status) && slices.Contains([]string{"card_error", "invalid_request_error"}, body.Error.Type):
			return VerdictAnswer // the key is looked up before the parameters are checked: it can't hide an earlier success
		case again == "false" && a.Status >= http.StatusConflict:
			return VerdictUnknown
		}
		return ""
	}}
}

// Square is how Square does, with the key in the body:
// https://developer.squareup.com/docs/build-basics/common-api-patterns/idempotency.
func Square() Dialect {
	return Dialect{field: "idempotency_key", bare: true, classify: func(a *Answer) Verdict {
		var body struct {
			Errors []struct{ Category, Code string }
		}
		readBody(a, &body)
		switch {
		case len(body.Errors) == 0:
		case body.Errors[0].Code == "IDEMPOTENCY_KEY_REUSED":
			return VerdictReused
		case body.Errors[0].Category == "PAYMENT_METHOD_ERROR":
			return VerdictAnswer
		}
		return ""
	}}
}

// PayPal is how PayPal does: https://developer.paypal.com/api/rest/reference/idempotency. MaxAge defaults to 3 h: some
// of its APIs keep keys no longer.
func PayPal() Dialect {
	return Dialect{header: "PayPal-Request-Id", bare: true, maxAge: 3 * time.Hour, classify: func(a *Answer) Verdict {
		var body struct{ Details []struct{ Issue string } }
		readBody(a, &body)
		for _, d := range body.Details {
			switch d.Issue {
			case "PREVIOUS_REQUEST_IN_PROGRESS":
				return VerdictInProgress
			case "DUPLICATE_REQUEST_ID":
				return VerdictReused
			}
		}
		return ""
	}}
}

// Adyen is how Adyen does: https://docs.adyen.com/development-resources/api-idempotency.
func Adyen() Dialect {
	return Dialect{bare: true, classify: func(a *Answer) Verdict {
		var body struct{ ErrorCode json.RawMessage }
		readBody(a, &body)
		transient := a.Header.Get("Transient-Error") == "true"
		switch used := strings.Trim(string(body.ErrorCode), `"`) == "704"; {
		case used && transient:
			return VerdictInProgress
		case used:
			return VerdictUnknown
		case transient:
			return VerdictRetry
		}
		return ""
	}}
}

// Draft07 is how servers do that follow draft-ietf-httpapi-idempotency-key-header-07, section 2.7: any 409 says that
// the operation runs.
func Draft07() Dialect {
	return Dialect{classify: func(a *Answer) Verdict {
		switch a.Status {
		case http.StatusConflict:
			return VerdictInProgress
		case http.StatusUnprocessableEntity:
			var body struct{ Title, Detail string }
			if readBody(a, &body); strings.Contains(strings.ToLower(body.Title+" "+body.Detail), "idempotency-key") {
				return VerdictReused
			}
		}
		return ""
	}}
}

// readBody reads an answer's object of JSON, as far as it is one.
func readBody(a *Answer, v any) { _ = json.Unmarshal(a.Body, v) }
