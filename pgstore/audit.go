package pgstore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

const (
	insertAudit = "SELECT {schema}.audit_1($1, $2, $3, $4, $5, $6)"
	listAudit   = "SELECT seq, at, id, operation, actor, action, reason, result FROM {schema}.audit WHERE seq < $1 ORDER BY seq DESC LIMIT $2"
	listAuditOf = "SELECT seq, at, id, operation, actor, action, reason, result FROM {schema}.audit WHERE seq < $1 AND id = $3::bytea ORDER BY seq DESC LIMIT $2"
)

// Audit implements [driver.Auditor].
func (s *Store) Audit(ctx context.Context, e driver.AuditEntry) error {
	c := (&call{sql: s.sql.audit}).bytes(e.ID[:]).text(e.Operation).text(e.Actor).text(e.Action).text(e.Reason).text(e.Result)
	if err := s.do(ctx, c, nil); err != nil {
		return fmt.Errorf("pgstore: audit: %w", err)
	}
	return nil
}

// AuditTrail implements [driver.Auditor].
func (s *Store) AuditTrail(ctx context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) error {
	given := 0
	for last := int64(1<<63 - 1); ; {
		page, next, err := s.auditPage(ctx, id, last)
		if err != nil {
			return fmt.Errorf("pgstore: audit trail: %w", err)
		}
		for _, e := range page {
			given++
			if !yield(e) || given == limit {
				return nil
			}
		}
		if len(page) < pageRows {
			return nil
		}
		last = next
	}
}

// auditPage reads the entries before last, the newest first, and where they end.
func (s *Store) auditPage(ctx context.Context, id *driver.ID, last int64) (page []driver.AuditEntry, next int64, err error) {
	c := (&call{sql: s.sql.trail}).int8(last).int8(pageRows)
	if id != nil {
		c.sql = s.sql.trailOf
		c.bytes(id[:])
	}
	page, err = collect(ctx, s, c, func(row [][]byte) (e driver.AuditEntry, _ error) {
		next = int8Of(row[0])
		e.At = driver.Time(int8Of(row[1]))
		copy(e.ID[:], row[2])
		e.Operation, e.Actor, e.Action = string(row[3]), string(row[4]), string(row[5])
		e.Reason, e.Result = string(row[6]), string(row[7])
		return e, nil
	})
	return page, next, err
}
