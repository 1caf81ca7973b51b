package shop

// A batch that can be resumed. Thousands of items do not fit into one transaction, which would keep everybody else
// waiting; so they are written in chunks, each in a transaction of its own, and a process may die between two of them.
// The next run begins at the first item again. No item is made twice, as the client has named each (client_item_id),
// and each upsert leaves behind which batch has made the item and which has changed it last: so an item that an earlier
// run of the batch has made is reported as created by this one too. Steps (semel.Step) would skip what is done, but not
// save the report: a process can die after a chunk is committed and before its step is saved. Where items have effects
// elsewhere, each is an operation of its own: see package batch.
//
// The key is for the batch, the names are for the items. A repeat under the same key gets the first answer. To correct
// items a client sends them in a new batch, under a new key and the same names. Batches are numbered, and an item only
// goes from an earlier batch to a later one: a batch that is resumed late does not undo what a later one has corrected.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
)

// What became of an item.
const (
	itemCreated   = "created"
	itemUpdated   = "updated"
	itemUnchanged = "unchanged" // it was there as it is
	itemConflict  = "conflict"  // the batch has another of that name, or a later batch has named it
	itemInvalid   = "invalid"
)

// BulkResult is what became of an item.
type BulkResult struct {
	ClientItemID string `json:"client_item_id" example:"sku-17"`
	Status       string `json:"status" enum:"created,updated,unchanged,conflict,invalid"`
	Detail       string `json:"detail,omitempty" doc:"Why, if it was not written" example:"price: expected integer"`
}

// BulkAnswer is what became of a batch.
type BulkAnswer struct {
	BatchID string `json:"batch_id" format:"uuid"`
	Summary struct {
		Created   int `json:"created"`
		Updated   int `json:"updated"`
		Unchanged int `json:"unchanged"`
		Conflict  int `json:"conflict"`
		Invalid   int `json:"invalid"`
	} `json:"summary"`
	Items []BulkResult `json:"items" doc:"In the order of the request"`
}

type bulkAnswer struct{ Body BulkAnswer }

type itemPage struct {
	Link string `header:"Link" doc:"rel=\"next\" is the next page"`
	Body struct {
		Count int64      `json:"count" doc:"How many items there are" example:"1"`
		Items []BulkItem `json:"items" doc:"By their names"`
		Next  string     `json:"next,omitempty" doc:"The cursor of the next page; missing on the last one"`
	}
}

// A transaction writes chunk items, by statements for perStatement of them: databases take more time for each parameter
// of a statement the more it has.
const (
	chunk        = 2000
	perStatement = 24
)

func (s *Shop) bulk() {
	register(s, call{
		id: "import-items", method: http.MethodPost, path: "/bulk/items", tag: "bulk", summary: "Make and change many items",
		once: &semel.Policy{OnLost: semel.Rerun, Lease: s.o.Lease, RespondAsync: true, MaxResponseBody: 8 << 20}, maxBody: 8 << 20, lenient: true,
	}, s.importItems)
	register(s, call{
		id: "list-items", method: http.MethodGet, path: "/bulk/items", tag: "bulk", summary: "List items",
	}, s.listItems)
	body := s.described(http.MethodPost, base+"/bulk/items").RequestBody.Content["application/json"]
	body.Schema = s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[BulkItems](), true, "BulkItems")
}

func (s *Shop) importItems(ctx context.Context, in *struct {
	RawBody []byte `contentType:"application/json"`
},
) (*bulkAnswer, error) {
	items, err := readItems(in.RawBody)
	if err != nil {
		return nil, invalid("body", err.Error())
	}
	b, err := s.beginBatch(ctx, digestItems(items))
	if err != nil {
		return nil, err
	}
	s.crash("bulk.begun")
	out := &bulkAnswer{BulkAnswer{BatchID: b.id, Items: checkItems(items)}}
	var due []int // items that are to be written
	for i, r := range out.Body.Items {
		if r.Status == "" {
			due = append(due, i)
		}
	}
	n := 0
	for part := range slices.Chunk(due, chunk) {
		if err := s.writeItems(ctx, b, items, part, out.Body.Items); err != nil {
			return nil, err
		}
		n++
		s.crash(fmt.Sprintf("bulk.chunk.%d", n))
	}
	sum := &out.Body.Summary
	counts := map[string]*int{itemCreated: &sum.Created, itemUpdated: &sum.Updated, itemUnchanged: &sum.Unchanged, itemConflict: &sum.Conflict, itemInvalid: &sum.Invalid}
	for _, r := range out.Body.Items {
		*counts[r.Status]++
	}
	return out, nil
}

// A batch of a tenant.
type batch struct {
	tenant, id string
	number     int64
}

// beginBatch finds the batch of the operation, or gives it the next number.
func (s *Shop) beginBatch(ctx context.Context, asked string) (*batch, error) {
	b, key := &batch{tenant: principal(ctx).Tenant}, semel.FromContext(ctx).Key("row")
	return b, s.db.Write(ctx, func(tx database.Tx) error {
		var next int64 // it has the tenant's other batches wait, so that none begins twice
		err := tx.QueryRow(ctx, `INSERT INTO batch_numbers (tenant, last) VALUES ($1, 1)
			ON CONFLICT (tenant) DO UPDATE SET last = batch_numbers.last + 1 RETURNING last`, b.tenant).Scan(&next)
		if err != nil {
			return fmt.Errorf("number the batch: %w", err)
		}
		var earlier string
		err = tx.QueryRow(ctx, "SELECT id, number, asked FROM batches WHERE row_key = $1", key).Scan(&b.id, &b.number, &earlier)
		switch {
		case err == nil && earlier != asked:
			return reused()
		case err == nil:
			return nil
		case !errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("find the batch: %w", err)
		}
		b.id, b.number = uuid.Must(uuid.NewV7()).String(), next
		_, err = tx.Exec(ctx, "INSERT INTO batches (tenant, number, id, row_key, asked, created) VALUES ($1, $2, $3, $4, $5, $6)", b.tenant, b.number, b.id, key, asked, now().UnixMilli())
		if err != nil {
			return fmt.Errorf("insert the batch: %w", err)
		}
		return nil
	})
}

// writeItems writes a part of the items in one transaction, and the status of each into results. It may be done again.
func (s *Shop) writeItems(ctx context.Context, b *batch, items []BulkItem, part []int, results []BulkResult) error {
	// In one order for all, or two transactions could wait for each other.
	part = slices.SortedFunc(slices.Values(part), func(i, j int) int { return strings.Compare(items[i].ClientItemID, items[j].ClientItemID) })
	err := s.db.Write(ctx, func(tx database.Tx) error {
		for some := range slices.Chunk(part, perStatement) {
			if err := upsertItems(ctx, tx, b, items, some, results); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write items: %w", err)
	}
	return nil
}

func upsertItems(ctx context.Context, tx database.Tx, b *batch, items []BulkItem, some []int, results []BulkResult) error {
	args := append(make([]any, 0, 2+4*len(some)), b.tenant, b.number)
	for _, i := range some {
		item := &items[i]
		args = append(args, item.ClientItemID, item.Name, item.Price, item.Quantity)
	}
	// Most batches bring new items, which takes half the time.
	n, err := tx.Exec(ctx, statement{len(some), orNothing}.text(), args...)
	if err != nil {
		return err
	}
	if n == int64(len(some)) {
		for _, i := range some {
			results[i].Status = itemCreated
		}
		return nil
	}
	at := make(map[string]*BulkResult, len(some))
	for _, i := range some {
		at[items[i].ClientItemID] = &results[i]
		results[i].Status, results[i].Detail = itemConflict, "a later batch has it" // unless the statement returns it
	}
	rows, err := tx.Query(ctx, statement{len(some), orUpdate}.text(), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			id               string
			createdBy, setBy int64
		)
		if err := rows.Scan(&id, &createdBy, &setBy); err != nil {
			return err
		}
		r := at[id]
		switch r.Detail = ""; b.number {
		case createdBy:
			r.Status = itemCreated
		case setBy:
			r.Status = itemUpdated
		default:
			r.Status = itemUnchanged
		}
	}
	return rows.Err()
}

// A statement inserts n items, and does something else with those that are there.
type statement struct {
	n  int
	or string
}

const (
	orNothing = " ON CONFLICT (tenant, client_item_id) DO NOTHING"
	// orUpdate returns the items that no later batch has.
	orUpdate = ` ON CONFLICT (tenant, client_item_id) DO UPDATE SET
		name = excluded.name, price = excluded.price, quantity = excluded.quantity, batch = excluded.batch,
		changed = CASE WHEN items.name = excluded.name AND items.price = excluded.price AND items.quantity = excluded.quantity
			THEN items.changed ELSE excluded.changed END
		WHERE items.batch <= excluded.batch
		RETURNING client_item_id, created, changed`
)

var texts sync.Map // of statements

func (s statement) text() string {
	if text, ok := texts.Load(s); ok {
		return text.(string)
	}
	var text strings.Builder
	text.WriteString("INSERT INTO items (tenant, batch, created, changed, client_item_id, name, price, quantity) VALUES ")
	for i := range s.n {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, "($1,$2,$2,$2,$%d,$%d,$%d,$%d)", 4*i+3, 4*i+4, 4*i+5, 4*i+6)
	}
	text.WriteString(s.or)
	texts.Store(s, text.String())
	return text.String()
}

func (s *Shop) listItems(ctx context.Context, in *struct{ Page }) (*itemPage, error) {
	var after string
	if err := in.read(&after); err != nil {
		return nil, err
	}
	out, tenant := &itemPage{}, principal(ctx).Tenant
	err := s.db.QueryRow(ctx, "SELECT COUNT(*) FROM items WHERE tenant = $1", tenant).Scan(&out.Body.Count)
	if err == nil {
		out.Body.Items, err = scanAll(func(row scanner) (*BulkItem, error) {
			var i BulkItem
			return &i, row.Scan(&i.ClientItemID, &i.Name, &i.Price, &i.Quantity)
		})(s.db.Query(ctx, "SELECT client_item_id, name, price, quantity FROM items WHERE tenant = $1 AND client_item_id > $2 ORDER BY client_item_id LIMIT $3", tenant, after, in.Limit+1))
	}
	if err != nil {
		return nil, fmt.Errorf("list items: %w", err)
	}
	if len(out.Body.Items) > in.Limit {
		out.Body.Items = out.Body.Items[:in.Limit]
		out.Body.Next, out.Link = in.next("/bulk/items", out.Body.Items[in.Limit-1].ClientItemID)
	}
	return out, nil
}
