package shop

import (
	"fmt"
	"strings"
	"testing"
)

func TestAnItemThatIsNoneIsReportedAndTheOthersAreRead(t *testing.T) {
	t.Parallel()
	const good = `{"client_item_id":"sku-1","name":"A book","price":2450}`
	for _, c := range []struct{ item, fault, why string }{
		{`{"client_item_id":"sku-2","name":"A pen","price":0,"quantity":0}`, "", "free, and none of it"},
		{`{"client_item_id":"sku-2","name":"A pen","price":1.5}`, "price: expected int64, got number 1.5", "money is never a decimal"},
		{`{"client_item_id":"sku-2","name":"A pen","price":1.0}`, "price: expected int64, got number 1.0", "nor one that looks whole"},
		{`{"client_item_id":"sku-2","name":"A pen","price":"190"}`, "price: expected int64, got string", "nor a text"},
		{`{"client_item_id":"sku-2","name":"A pen","price":1e400}`, "price: expected int64, got number 1e400", "huge"},
		{`{"client_item_id":"sku-2","name":"A pen","price":9223372036854775808}`, "price: expected int64, got number 9223372036854775808", "too large for the type"},
		{`{"client_item_id":"sku-2","name":"A pen","price":100000000001}`, "price: expected 0 to 100000000000", "too large"},
		{`{"client_item_id":"sku-2","name":"A pen"}`, "price: expected 0 to 100000000000", "missing"},
		{`{"client_item_id":"sku-2","name":"A pen","price":null}`, "price: expected 0 to 100000000000", "null is missing"},
		{`{"client_item_id":"sku-2","name":"A pen","price":190,"quantity":-1}`, "quantity: expected 0 to 1000000000", "negative"},
		{`{"client_item_id":"sku-2","name":"A pen","price":190,"stock":1}`, `unknown field "stock"`, "not known"},
		{`{"client_item_id":"sku 2","name":"A pen","price":190}`, "client_item_id: expected 1 to 64 letters, digits and any of ._~-", "a space"},
		{`{"client_item_id":"` + strings.Repeat("x", 65) + `","name":"A pen","price":190}`, "client_item_id: expected 1 to 64 letters, digits and any of ._~-", "long"},
		{`{"name":"A pen","price":190}`, "client_item_id: expected 1 to 64 letters, digits and any of ._~-", "no name to find it by"},
		{`{"client_item_id":"sku-2","name":"\u0000","price":190}`, "name: expected 1 to 200 characters without NUL", "PostgreSQL stores no NUL"},
		{`{"client_item_id":"sku-2","name":"` + strings.Repeat("ä", 201) + `","price":190}`, "name: expected 1 to 200 characters without NUL", "long"},
		{`null`, "client_item_id: expected 1 to 64 letters, digits and any of ._~-", "no item"},
		{`[1]`, "item: expected shop.BulkItem, got array", "no item"},
	} {
		items, err := readItems([]byte(`{"items":[` + good + `,` + c.item + `,` + good + `]}`))
		if err != nil || len(items) != 3 || items[0].fault != "" || items[2].ClientItemID != "sku-1" || items[2].fault != "" {
			t.Errorf("%s: %+v, %v (%s)", c.item, items, err, c.why)
		} else if items[1].fault != c.fault {
			t.Errorf("%s: %q, want %q (%s)", c.item, items[1].fault, c.fault, c.why)
		}
	}
	items, err := readItems(fmt.Appendf(nil, `{"items":[%s,{"client_item_id":"sku-1","name":"A mug","price":1290},{}]}`, good))
	if err != nil {
		t.Fatal(err)
	}
	if r := checkItems(items); r[0].Status != "" || r[1].Status != itemConflict || r[1].Detail != "items[0] has the same client_item_id" || r[2].Status != itemInvalid {
		t.Error(r)
	}
}

func TestABatchThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	const item = `{"client_item_id":"sku-1","name":"A book","price":2450}`
	for _, c := range []struct{ text, want, why string }{
		{``, "unexpected", "nothing"},
		{`[]`, "expected", "no object"},
		{`{"itemz":[]}`, "expected", "another name"},
		{`{"items":{}}`, "expected", "no array"},
		{`{"items":[]}`, "at least 1", "no items"},
		{`{"items":[` + item, "unexpected", "cut off"},
		{`{"items":[` + item + `,{"client_item_id":]}`, "invalid character", "no JSON"},
		{`{"items":[` + item + `],"more":1}`, "nothing but items", "another property"},
		{`{"items":[` + item + `]}{}`, "nothing but items", "two documents"},
		{`{"items":[` + strings.Repeat(item+",", maxItems) + item + `]}`, "at most 10000", "too many"},
	} {
		if items, err := readItems([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.100s: %d items, %v; want %q (%s)", c.text, len(items), err, c.want, c.why)
		}
	}
}

func TestADigestTellsItemsApart(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, text := range []string{
		`{"client_item_id":"ab","name":"c","price":1}`,
		`{"client_item_id":"a","name":"bc","price":1}`,
		`{"client_item_id":"ab","name":"c","price":2}`,
		`{"client_item_id":"ab","name":"c","price":1,"quantity":1}`,
		`{"client_item_id":"ab","name":"c","price":"1"}`,
	} {
		items, err := readItems([]byte(`{"items":[` + text + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[digestItems(items)]; other != "" {
			t.Errorf("%s is taken for %s", text, other)
		}
		seen[digestItems(items)] = text
	}
}
