package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/examples/shop/host"
)

func TestARequestThatIsNotValidIsToldWhichFieldIsWrong(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{Database: newDatabase(t)})
	const id = "/orders/0198c2e0-0000-7000-8000-000000000000"
	for _, c := range []struct{ call, body, field, why string }{
		{"POST /orders", `{"lines":[{"product":"book-1","quantity":1.5}]}`, "body.lines[0].quantity", "half a book"},
		{"POST /orders", `{"lines":[{"product":"book-1","quantity":1e300}]}`, "body.lines[0].quantity", "huge"},
		{"POST /orders", `{"lines":[{"product":"book-1","quantity":9223372036854775808}]}`, "body.lines[0].quantity", "too large for the type"},
		{"POST /orders", `{"lines":[{"product":"book-1","quantity":0}]}`, "body.lines[0].quantity", "none"},
		{"POST /orders", `{"lines":[{"product":"none","quantity":1}]}`, "body.lines[0].product", "unknown"},
		{"POST /orders", `{"lines":[{"product":"book-1","quantity":1,"price":1}]}`, "body.lines[0].price", "a price is never the client's"},
		{"POST /orders", `{"lines":[{"product":"book-1","quantity":1}],"total":1}`, "body.total", "nor is a total"},
		{"POST /orders", `{"lines":null}`, "body.lines", "null"},
		{"POST /orders", `{}`, "body", "missing"},
		{"POST /orders", `{"lines":[{"product":"book-1","quantity":1}],"note":"\u0000"}`, "body.note", "PostgreSQL stores no NUL"},
		{"POST /orders", `{"lines":[{"product":"\u0000","quantity":1}]}`, "body.lines[0].product", "NUL"},
		{"PUT " + id, `{"lines":[{"product":"book-1","quantity":"1"}]}`, "body.lines[0].quantity", "a text"},
		{"PUT /orders/17", `{"lines":[{"product":"book-1","quantity":1}]}`, "path.id", "no UUID"},
		{"PATCH " + id, `{"note":"\u0000"}`, "body.note", "NUL"},
		{"POST /pricing/calculate", `{"lines":[{"product":"book-1","quantity":-1}]}`, "body.lines[0].quantity", "negative"},
		{"POST /pricing/calculate", `{"lines":[{"product":"book-1","quantity":1}],"discount":5}`, "body.discount", "a discount is never the client's"},
		{"POST /pricing/save", `{"lines":[{"product":"book-1","quantity":1}],"coupon":"\u0000"}`, "body.coupon", "NUL"},
		{"PUT /charges/a", `{"account":"acc-1","amount":12.90,"currency":"EUR"}`, "body.amount", "money is never a decimal"},
		{"PUT /charges/a", `{"account":"acc-1","amount":"1290","currency":"EUR"}`, "body.amount", "nor a text"},
		{"PUT /charges/a", `{"account":"acc-1","amount":0,"currency":"EUR"}`, "body.amount", "nothing"},
		{"PUT /charges/a", `{"account":"acc-1","amount":100000000001,"currency":"EUR"}`, "body.amount", "too large"},
		{"PUT /charges/a", `{"account":"acc-1","amount":1290,"currency":"euro"}`, "body.currency", "not ISO 4217"},
		{"PUT /charges/a%20b", `{"account":"acc-1","amount":1290,"currency":"EUR"}`, "path.clientRequestId", "a space"},
		{"PUT /charges/a", `{"account":"\u0000","amount":1290,"currency":"EUR"}`, "body.account", "NUL"},
		{"POST /accounts/acc-1/points", `{"amount":0.5}`, "body.amount", "half a point"},
		{"POST /accounts/acc-1/points", `{"amount":0}`, "body.amount", "no point"},
		{"POST /accounts/acc-1/points", `{"amount":1000000001}`, "body.amount", "too many"},
		{"POST /accounts/acc-1/points", `{"amount":1,"balance":5}`, "body.balance", "a balance is never the client's"},
		{"POST /accounts/acc-1/points", `{"amount":1,"reason":"\u0000"}`, "body.reason", "NUL"},
		{"POST /bulk/items", `{"items":[]}`, "body", "no items"},
		{"POST /bulk/items", `{"items":[{}]`, "body", "no JSON"},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		key := ""
		if method == http.MethodPost || method == http.MethodPatch {
			key = s.newKey()
		}
		header := http.Header{"If-Match": {"*"}}
		if method == http.MethodPatch {
			header.Set("Content-Type", "application/merge-patch+json")
		}
		r := s.call(0, method, path, key, c.body, header)
		if r.Status != http.StatusBadRequest || !strings.Contains(r.String(), `"field":"`+c.field+`"`) {
			t.Errorf("%s %s: %s\nwant 400 for %s (%s)", c.call, c.body, r, c.field, c.why)
		}
	}
}
