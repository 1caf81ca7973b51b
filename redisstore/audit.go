package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/semelhq/semel/driver"
)

const auditPage = 256 // entries that are read at once

// Audit implements [driver.Auditor]. The entries are a stream under the key Prefix + "audit", which is never trimmed.
func (s *Store) Audit(ctx context.Context, e driver.AuditEntry) error {
	_, err := auditScript.run(ctx, s.client, s.auditKey(), "id", e.ID.String(), "operation", e.Operation, "actor", e.Actor,
		"action", e.Action, "reason", e.Reason, "result", e.Result)
	if err != nil {
		return fmt.Errorf("redisstore: audit: %w", err)
	}
	return nil
}

func (s *Store) auditKey() string { return s.prefix + "audit" }

// AuditTrail implements [driver.Auditor]. For one operation it reads the whole trail.
func (s *Store) AuditTrail(ctx context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) error {
	given := 0
	for last := "+"; ; {
		page, next, err := s.auditPage(ctx, last)
		if err != nil {
			return fmt.Errorf("redisstore: audit trail: %w", err)
		}
		for _, e := range page {
			if id != nil && *id != e.ID {
				continue
			}
			given++
			if !yield(e) || given == limit {
				return nil
			}
		}
		if len(page) < auditPage {
			return nil
		}
		last = "(" + next
	}
}

// auditPage reads the entries before last, the newest first, and where they end.
func (s *Store) auditPage(ctx context.Context, last string) (page []driver.AuditEntry, next string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	got, err := s.client.Do(ctx, s.auditKey(), "XREVRANGE", s.auditKey(), last, "-", "COUNT", strconv.Itoa(auditPage))
	if err = interpretError(err); err != nil {
		return nil, "", err
	}
	list, ok := got.([]any)
	if !ok && got != nil {
		return nil, "", fmt.Errorf("XREVRANGE replied a %T", got)
	}
	for _, v := range list {
		pair, _ := v.([]any)
		if len(pair) != 2 {
			return nil, "", fmt.Errorf("XREVRANGE replied an entry of %d parts", len(pair))
		}
		next, _ = textOf(pair[0])
		fields, _ := pair[1].([]any)
		e, err := auditEntry(fields)
		if err != nil {
			return nil, "", fmt.Errorf("entry %s: %w", next, err)
		}
		page = append(page, e)
	}
	return page, next, nil
}

func auditEntry(fields []any) (e driver.AuditEntry, err error) {
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := textOf(fields[i])
		value, _ := textOf(fields[i+1])
		switch name {
		case "at":
			var at int64
			at, err = strconv.ParseInt(value, 10, 64)
			e.At = driver.Time(at)
		case "id":
			e.ID, err = driver.ParseID(value)
		case "operation":
			e.Operation = value
		case "actor":
			e.Actor = value
		case "action":
			e.Action = value
		case "reason":
			e.Reason = value
		case "result":
			e.Result = value
		}
		if err != nil {
			return e, err
		}
	}
	return e, nil
}
