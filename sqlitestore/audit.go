package sqlitestore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

const (
	insertAudit = "INSERT INTO semel_audit (at, id, operation, actor, action, reason, result) VALUES (?, ?, ?, ?, ?, ?, ?)"
	listAudit   = "SELECT seq, at, id, operation, actor, action, reason, result FROM semel_audit WHERE seq < ? ORDER BY seq DESC LIMIT ?"
	listAuditOf = "SELECT seq, at, id, operation, actor, action, reason, result FROM semel_audit WHERE seq < ? AND id = ? ORDER BY seq DESC LIMIT ?"
)

// Audit implements [driver.Auditor].
func (s *Store) Audit(ctx context.Context, e driver.AuditEntry) error {
	size := len(e.Operation) + len(e.Actor) + len(e.Action) + len(e.Reason) + len(e.Result)
	_, _, err := decide(ctx, s, &call{size: size}, func(u *unit) (struct{}, bool, error) {
		_, err := u.conn.ExecContext(detached, insertAudit, int64(u.now), e.ID[:], e.Operation, e.Actor, e.Action, e.Reason, e.Result)
		u.wrote = u.wrote || err == nil
		return struct{}{}, false, interpretError(err)
	})
	if err != nil {
		return fmt.Errorf("sqlitestore: audit: %w", err)
	}
	return nil
}

// AuditTrail implements [driver.Auditor].
func (s *Store) AuditTrail(ctx context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) error {
	given := 0
	for last := int64(1<<63 - 1); ; {
		page, next, err := s.auditPage(ctx, id, last)
		if err != nil {
			return fmt.Errorf("sqlitestore: audit trail: %w", err)
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
	query, args := listAudit, []any{last, pageRows}
	if id != nil {
		query, args = listAuditOf, []any{last, id[:], pageRows}
	}
	err = s.read(ctx, func(c *session) error {
		page = nil
		rows, err := c.conn.QueryContext(ctx, query, args...)
		return each(rows, err, func() (more bool, err error) {
			var e driver.AuditEntry
			var key []byte
			err = rows.Scan(&next, &e.At, &key, &e.Operation, &e.Actor, &e.Action, &e.Reason, &e.Result)
			copy(e.ID[:], key)
			page = append(page, e)
			return true, err
		})
	})
	return page, next, err
}
