package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

// identities returns the ids of the operations that a key may stand for; operation is "" unless it is part of the
// identity. There are two if the key is a UUID with digits in upper case: the case does not count on a route that takes
// only UUIDs. A key that has come to a guard is read by a guard here too, so that it can't be taken for another one. An
// error is about what was asked for.
func identities(ctx context.Context, secret []byte, kind semel.Kind, scope, key, operation string) ([]driver.ID, error) {
	identify := identityHTTP
	switch kind {
	case semel.KindHTTP:
	case semel.KindDo:
		identify = identityDo
	default:
		if operation != "" {
			return nil, fmt.Errorf("--operation goes with --kind http and do, not with %s", kind)
		}
		return []driver.ID{semel.Identify(secret, kind, scope, key)}, nil
	}
	id, err := identify(ctx, secret, semel.KeyFormat{}, scope, key, operation)
	if err != nil {
		return nil, err
	}
	ids := []driver.ID{id}
	if id, err := identify(ctx, secret, semel.KeyFormat{UUID: semel.UUIDAny}, scope, key, operation); err == nil && id != ids[0] {
		ids = append(ids, id)
	}
	return ids, nil
}

func identityHTTP(ctx context.Context, secret []byte, format semel.KeyFormat, scope, key, operation string) (driver.ID, error) {
	method, path := http.MethodPost, "/"
	if operation != "" {
		var ok bool
		if method, path, ok = strings.Cut(operation, " "); !ok || !strings.HasPrefix(path, "/") {
			return driver.ID{}, fmt.Errorf("--operation %q: want the request's method and path, such as \"POST /payments\"", operation)
		}
	}
	var refused refusalWatch
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(func(*http.Request) (string, error) { return scope, nil }), semel.Hold,
		semel.Options{
			IdentitySecret: secret, Observer: &refused,
			Policy: semel.Policy{Methods: []string{method}, PerOperation: operation != "", KeyFormat: format},
		})
	if err != nil {
		return driver.ID{}, fmt.Errorf("--operation %q: %w", operation, err)
	}
	r, err := http.NewRequestWithContext(ctx, method, path, nil)
	if err != nil {
		return driver.ID{}, fmt.Errorf("--operation %q: %w", operation, err)
	}
	r.Header["Idempotency-Key"] = []string{key}
	var public string
	guard.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		public = semel.FromContext(r.Context()).ID()
	})).ServeHTTP(nowhere{}, r)
	if public == "" {
		return driver.ID{}, refused.err
	}
	return driver.ParseID(public)
}

func identityDo(ctx context.Context, secret []byte, format semel.KeyFormat, scope, key, operation string) (driver.ID, error) {
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{
		IdentitySecret: secret, Observer: &refusalWatch{}, Policy: semel.Policy{PerOperation: operation != "", KeyFormat: format},
	})
	if err != nil {
		return driver.ID{}, err
	}
	public, err := semel.Do(ctx, guard, semel.Key{Scope: scope, Operation: cmp.Or(operation, "any"), Value: key}, semel.Bytes(nil), func(ctx context.Context) (string, error) {
		return semel.FromContext(ctx).ID(), nil
	})
	if err != nil {
		return driver.ID{}, err
	}
	return driver.ParseID(public)
}

// A refusal is why a guard has not run a request.
type refusalWatch struct{ err error }

func (r *refusalWatch) Observe(_ context.Context, e event.Event) {
	if e.Kind == event.Decision && e.Code != "" {
		if r.err = e.Err; r.err == nil {
			r.err = errors.New(string(e.Code))
		}
	}
}

// nowhere takes an answer that nobody reads.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}
