package pgstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel/driver"
)

// A trip of [Store.ClaimAll] has at most so many claims, and their requests so many bytes unless a single one has more:
// it is one transaction, which holds the rows that it has written until it ends.
const (
	tripClaims = 1000
	tripBytes  = 4 << 20
)

// claimAll calls the function of the single claim for each row, in the order in which they were sent. Each call sees
// what those before it have done.
const claimAll = `SELECT u.n, {schema}.claim_1(u.id, u.token, u.fingerprint, u.on_lost, u.lease, u.retention, u.tombstone,
	u.operation, u.correlation, u.sealed)
	FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[],
	$8::bytea[], $9::bytea[], $10::bytea[])
	WITH ORDINALITY AS u(id, token, fingerprint, on_lost, lease, retention, tombstone, operation, correlation, sealed, n)`

// claimTypes are the types of the parameters of claimAll: each array's and its elements'.
var claimTypes = [...]struct{ array, element uint32 }{
	{pgtype.ByteaArrayOID, pgtype.ByteaOID},
	{pgtype.ByteaArrayOID, pgtype.ByteaOID},
	{pgtype.ByteaArrayOID, pgtype.ByteaOID},
	{pgtype.Int2ArrayOID, pgtype.Int2OID},
	{pgtype.Int8ArrayOID, pgtype.Int8OID},
	{pgtype.Int8ArrayOID, pgtype.Int8OID},
	{pgtype.Int8ArrayOID, pgtype.Int8OID},
	{pgtype.ByteaArrayOID, pgtype.ByteaOID},
	{pgtype.ByteaArrayOID, pgtype.ByteaOID},
	{pgtype.ByteaArrayOID, pgtype.ByteaOID},
}

// ClaimAll implements [driver.BatchClaimer]: 1000 claims, or 4 MiB of sealed requests, are one statement and one
// transaction. They are made in the order of their ids, so that batches wait for each other, and not in a circle. A
// claim that has to wait for somebody's transaction holds up those of its trip.
func (s *Store) ClaimAll(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(bytes.Compare(claims[a].ID[:], claims[b].ID[:]), cmp.Compare(a, b))
	})
	results := make([]driver.Claimed, len(claims))
	for len(order) > 0 {
		n, size := 0, 0
		for n < len(order) && n < tripClaims && (n == 0 || size+len(claims[order[n]].Sealed) <= tripBytes) {
			size += len(claims[order[n]].Sealed)
			n++
		}
		s.claimTrip(ctx, claims, results, order[:n])
		order = order[n:]
	}
	return results
}

// claimTrip makes the claims with the given numbers.
func (s *Store) claimTrip(ctx context.Context, claims []driver.ClaimOf, results []driver.Claimed, numbers []int) {
	c := s.claimAllCall(claims, numbers)
	read := 0
	err := again(ctx, func() error {
		read = 0
		return s.once(ctx, c, func(row [][]byte) error {
			n := int8Of(row[0])
			if n < 1 || n > int64(len(numbers)) {
				return fmt.Errorf("a row for claim %d of %d", n, len(numbers))
			}
			read++
			result := &results[numbers[n-1]]
			*result = driver.Claimed{}
			f, err := readFound(row[1])
			if err != nil { // of this record only
				result.Err = fmt.Errorf("pgstore: claim: %w", err)
				return nil
			}
			result.Record, result.Owned = f.rec, f.owned
			return nil
		})
	})
	if err == nil && read != len(numbers) {
		err = fmt.Errorf("%d rows for %d claims", read, len(numbers))
	}
	if err == nil {
		return
	}
	err = fmt.Errorf("pgstore: claim: %w", noRoom(err))
	for _, n := range numbers {
		results[n] = driver.Claimed{Err: err}
	}
}

func (s *Store) claimAllCall(claims []driver.ClaimOf, numbers []int) *call {
	var columns [len(claimTypes)][]byte
	for i, t := range claimTypes {
		columns[i] = arrayHead(t.element, len(numbers))
	}
	for _, n := range numbers {
		for i, value := range s.claimCall(claims[n].ID, claims[n].Claim).values {
			columns[i] = appendElement(columns[i], value)
		}
	}
	c := &call{sql: s.sql.claimAll}
	for i, t := range claimTypes {
		c.add(t.array, columns[i])
	}
	return c
}

// arrayHead begins an array of one dimension in the binary format.
func arrayHead(element uint32, n int) (b []byte) {
	b = binary.BigEndian.AppendUint32(b, 1) // dimensions
	b = binary.BigEndian.AppendUint32(b, 1) // there may be NULLs
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1) // the first index
}

// appendElement adds an element, NULL if it is nil.
func appendElement(b, value []byte) []byte {
	if value == nil {
		return binary.BigEndian.AppendUint32(b, 1<<32-1)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}
