package shop

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/semelhq/semel/examples/shop/database"
)

// A scanner is a row of a query's result.
type scanner interface{ Scan(to ...any) error }

// scanAll reads the rows of a query, whose error it passes on.
func scanAll[T any](scan func(scanner) (*T, error)) func(database.Rows, error) ([]T, error) {
	return func(rows database.Rows, err error) ([]T, error) {
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		all := []T{} // [] in JSON, not null
		for rows.Next() {
			v, err := scan(rows)
			if err != nil {
				return nil, err
			}
			all = append(all, *v)
		}
		return all, rows.Err()
	}
}

// encode is for values that can be encoded as JSON.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// digest stands for a request in a row: an earlier request is compared with a later one.
func digest(v any) string {
	sum := sha256.Sum256([]byte(encode(v)))
	return hex.EncodeToString(sum[:])
}
