package shop

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// BulkItems are the items of a batch. A batch that is none is refused as a whole; an item that is none is reported, and
// the others are written.
type BulkItems struct {
	Items []BulkItem `json:"items" minItems:"1" maxItems:"10000"`
}

// BulkItem is what a client wants an item to be.
type BulkItem struct {
	ClientItemID string `json:"client_item_id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._~-]+$" doc:"The client's name for the item, the same in each batch" example:"sku-17"`
	Name         string `json:"name" minLength:"1" maxLength:"200" example:"A book"`
	Price        int64  `json:"price" minimum:"0" maximum:"100000000000" doc:"In minor units of the currency" example:"2450"`
	Quantity     int64  `json:"quantity,omitempty" minimum:"0" maximum:"1000000000" example:"12"`

	fault string // why it is none
}

const maxItems = 10_000

// readItems reads the items of a request one by one, so that one of them may be wrong.
func readItems(text []byte) ([]BulkItem, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	items := make([]BulkItem, 0, min(maxItems, len(text)/64))
	for _, want := range []json.Token{json.Delim('{'), "items", json.Delim('[')} {
		if err := expect(d, want, `expected {"items": [...]}`); err != nil {
			return nil, err
		}
	}
	for d.More() {
		if len(items) == maxItems {
			return nil, fmt.Errorf("items: expected at most %d items", maxItems)
		}
		items = append(items, BulkItem{Price: -1}) // missing
		item := &items[len(items)-1]
		err := d.Decode(item)
		var (
			mistyped *json.UnmarshalTypeError
			unread   *json.SyntaxError
		)
		switch {
		case errors.As(err, &unread) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, err
		case errors.As(err, &mistyped):
			item.fault = fmt.Sprintf("%s: expected %s, got %s", cmp.Or(mistyped.Field, "item"), mistyped.Type, mistyped.Value)
		case err != nil:
			item.fault = strings.TrimPrefix(err.Error(), "json: ")
		default:
			item.fault = item.check()
		}
	}
	if len(items) == 0 {
		return nil, errors.New("items: expected at least 1 item")
	}
	for _, want := range []json.Token{json.Delim(']'), json.Delim('}'), nil} {
		if err := expect(d, want, "expected nothing but items"); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// expect reads a token. nil is the end.
func expect(d *json.Decoder, want json.Token, otherwise string) error {
	got, err := d.Token()
	switch {
	case errors.Is(err, io.EOF) && want != nil:
		return io.ErrUnexpectedEOF
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case got != want:
		return errors.New(otherwise)
	}
	return nil
}

// check returns what is wrong with an item that could be read.
func (i *BulkItem) check() string {
	switch {
	case !isName(i.ClientItemID):
		return "client_item_id: expected 1 to 64 letters, digits and any of ._~-"
	case i.Name == "" || utf8.RuneCountInString(i.Name) > 200 || strings.ContainsRune(i.Name, 0):
		return "name: expected 1 to 200 characters without NUL"
	case i.Price < 0 || i.Price > 100_000_000_000:
		return "price: expected 0 to 100000000000"
	case i.Quantity < 0 || i.Quantity > 1_000_000_000:
		return "quantity: expected 0 to 1000000000"
	}
	return ""
}

func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '~' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// checkItems returns a result for each item: those that are to be written have no status yet. Of two items of one name
// the first one is written.
func checkItems(items []BulkItem) []BulkResult {
	results, first := make([]BulkResult, len(items)), make(map[string]int, len(items))
	for i := range items {
		item, r := &items[i], &results[i]
		r.ClientItemID = item.ClientItemID
		if item.fault != "" {
			r.Status, r.Detail = itemInvalid, item.fault
			continue
		}
		if n, ok := first[item.ClientItemID]; ok {
			r.Status, r.Detail = itemConflict, fmt.Sprintf("items[%d] has the same client_item_id", n)
			continue
		}
		first[item.ClientItemID] = i
	}
	return results
}

// digestItems stands for the items.
func digestItems(items []BulkItem) string {
	h, text := sha256.New(), []byte(nil)
	for i := range items {
		item := &items[i]
		text = text[:0]
		for _, s := range []string{item.ClientItemID, item.Name, item.fault} {
			text = append(binary.AppendUvarint(text, uint64(len(s))), s...)
		}
		h.Write(binary.AppendVarint(binary.AppendVarint(text, item.Price), item.Quantity))
	}
	return hex.EncodeToString(h.Sum(nil))
}
