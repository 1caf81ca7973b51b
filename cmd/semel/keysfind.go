package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/driver"
)

// What find takes instead of a key.
const (
	shortestPrefix = 8   // characters; fewer stand for too many operations
	mostFound      = 100 // listed, if many are meant
)

func (k *keysRun) find(ctx context.Context, c *keysFind) error {
	scope, err := c.given()
	if err != nil {
		return err
	}
	if scope == "" {
		return k.findText(ctx, c.What)
	}
	id, err := k.identify(ctx, &c.principal, c.What, c.Operation)
	if err != nil {
		return err
	}
	if err := k.print(ctx, id, false); !errors.Is(err, admin.ErrNotFound) {
		return err
	}
	return notFound("it was never seen, or its retention is over, or it was forgotten, unless", hints(c))
}

// findText finds what an id, the beginning of one, or else a correlation id stands for.
func (k *keysRun) findText(ctx context.Context, text string) error {
	if id, err := driver.ParseID(text); err == nil {
		known, err := k.known(ctx, id)
		if err != nil {
			return err
		}
		if known {
			return k.print(ctx, id, false)
		}
	}
	queries := []driver.Query{{Correlation: text}}
	if len(text) >= shortestPrefix {
		queries = []driver.Query{{Prefix: text}, {Correlation: text}}
	}
	for _, q := range queries {
		found, failed := k.collect(ctx, q, func(*driver.Record) bool { return true }, mostFound, orders["newest"])
		switch {
		case found.total == 1 && failed == nil:
			return k.print(ctx, found.last.items[0].id, false)
		case found.total > 0:
			return errors.Join(k.printAll(found), failed)
		case failed != nil:
			return failed
		}
	}
	list := []string{"  - it is a key: then say who sent it, --scope PRINCIPAL or --single"}
	if len(text) < shortestPrefix {
		list = append(list, fmt.Sprintf("  - it is the beginning of an id: then give at least %d characters", shortestPrefix))
	}
	if k.keyless {
		list = append(list, "  - it is a correlation id, and the gateway has encryption keys: then say --encryption-keys-file FILE")
	}
	return notFound("no id begins so, and no last run of an operation has this correlation id, unless",
		append(list, "  - it is the correlation id of a repeat, or of an earlier run: only that of the last run is stored"))
}

// known reports whether an operation is stored, or something was decided about it.
func (k *keysRun) known(ctx context.Context, id driver.ID) (bool, error) {
	rec, trail, err := k.desk.Show(ctx, id)
	return rec.State != driver.Absent || len(trail) > 0, err
}

func notFound(why string, hints []string) error {
	return fmt.Errorf("%w: %s\n%s", admin.ErrNotFound, why, strings.Join(hints, "\n"))
}

// hints say under which other identity a key may be stored.
func hints(c *keysFind) []string {
	var list []string
	if c.Single {
		list = append(list, "  - the gateway runs with --scope header:NAME: then say --scope PRINCIPAL")
	} else {
		list = append(list, "  - the principal is spelt otherwise in the scope header, or the gateway runs with --scope single: then say --single")
	}
	if c.Operation == "" {
		list = append(list, "  - the route has method and path in its identity (per_operation): then say --operation \"METHOD /PATH\"")
	} else {
		list = append(list, "  - the route does not have method and path in its identity: then leave out --operation")
	}
	if c.Kind == string(semel.KindHTTP) {
		list = append(list, "  - it was no request, but a call of the library: then say --kind do, message or saga")
	}
	return append(list,
		"  - the key is spelt otherwise: case counts, but for UUIDs on routes that take nothing else",
		"  - it is no key, but an id or a correlation id: then leave out --scope and --single")
}
