package shop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
)

// base is where the API is.
const base = "/api/v1"

func init() {
	huma.NewError = newProblem // what huma itself refuses has the form of the shop's refusals
	huma.DefaultArrayNullable = false
}

// config describes the API. The paths of its operations begin with base.
func (s *Shop) config() huma.Config {
	c := huma.DefaultConfig("Shop", "1.0.0")
	c.DocsPath, c.OpenAPIPath, c.SchemasPath = "", "/openapi", ""
	c.CreateHooks = nil // no $schema in answers: they are stored and replayed
	c.Info.Description = "Orders, payments, pricing, charges, intents, points and bulk imports that take effect once, however often they are asked for."
	c.Info.License = &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}
	c.Servers = []*huma.Server{{URL: "/", Description: "The shop that serves this description"}}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", BearerFormat: "JWT"}}
	c.Security = []map[string][]string{{"token": {}}}
	if s.o.Auth.InsecureDev {
		c.Components.SecuritySchemes["token"] = &huma.SecurityScheme{Type: "apiKey", In: "header", Name: "X-Tenant-ID"}
	}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		c.Tags = append(c.Tags, &huma.Tag{Name: tag, Description: tags[tag]})
	}
	s.components(c.Components)
	c.Transformers = append(c.Transformers, func(ctx huma.Context, _ string, v any) (any, error) {
		if p, ok := v.(*Problem); ok && s.o.SimpleErrors {
			ctx.SetHeader("Content-Type", "application/json")
			return p.simple(), nil
		}
		return v, nil
	})
	return c
}

// A call is one of the API's: how it is described, and how it is protected.
type call struct {
	id, method, path string
	summary, tag     string // the tag is one of tags, in openapi.go
	status           int    // of success; 200 by default
	// once makes it take effect once, by the key that its client sends. With OneCommit the handler runs in a
	// transaction, see [txOf]. nil is for a call that needs no key: one that has no effect, or whose repeat has the
	// same effect by nature.
	once     *semel.Policy
	maxBody  int64 // in bytes; 64 KiB by default
	lenient  bool  // the handler itself checks the body
	refusals []int // statuses of the shop's own refusals, besides 400 and 401, and of further successes
}

// register adds a call to the API.
func register[I, O any](s *Shop, c call, handler func(context.Context, *I) (*O, error)) {
	if tags[c.tag] == "" {
		panic(fmt.Sprintf("call %s has the tag %q, which tags in openapi.go does not have", c.id, c.tag))
	}
	op := huma.Operation{
		OperationID: c.id, Method: c.method, Path: base + c.path, Summary: c.summary, Tags: []string{c.tag},
		DefaultStatus: c.status, MaxBodyBytes: cmp.Or(c.maxBody, 64<<10), SkipValidateBody: c.lenient,
	}
	s.describe(&op, &c)
	if c.once != nil {
		p := *c.once
		p.MaxRequestBody = op.MaxBodyBytes
		if p.Decide == nil {
			p.Decide = releaseInvalid
		}
		op.Middlewares = append(op.Middlewares, once(s.guard.Route(p)))
		if p.OneCommit {
			op.Middlewares = append(op.Middlewares, s.inTx)
		}
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if p := huma.StatusError(nil); err != nil && !errors.As(err, &p) {
			s.o.Log.ErrorContext(ctx, "a call has failed", "operation", c.id, "error", err)
		}
		return out, err
	})
	s.describeOthers(s.described(op.Method, op.Path), &c)
}

// once is a guard as a middleware of huma.
func once(g *semel.Guard) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next(humago.NewContext(ctx.Operation(), r, w))
		})).ServeHTTP(w, r)
	}
}

// releaseInvalid lets a client correct a request that was not valid, and send it under the same key: nothing has
// happened.
func releaseInvalid(status int, _ http.Header, _ []byte) semel.Verdict {
	if status == http.StatusBadRequest || status == http.StatusUnsupportedMediaType {
		return semel.VerdictRelease
	}
	return semel.VerdictDefault
}

type txKey struct{}

// txOf returns the transaction that a handler in one-commit mode runs in. It commits together with the answer, once
// huma has written that.
func txOf(ctx context.Context) database.Tx { return ctx.Value(txKey{}).(database.Tx) }

var errRefused = errors.New("the answer is a refusal")

// inTx runs the rest of a call in a transaction. A refusal undoes what was done in it, and is stored in its place.
func (s *Shop) inTx(ctx huma.Context, next func(huma.Context)) {
	err := s.db.Tx(ctx.Context(), func(c context.Context, tx database.Tx) error {
		next(huma.WithValue(huma.WithContext(ctx, c), txKey{}, tx))
		if ctx.Status() >= http.StatusBadRequest {
			return errRefused
		}
		return nil
	})
	if err != nil && !errors.Is(err, errRefused) { // then the guard has an answer
		s.o.Log.ErrorContext(ctx.Context(), "a transaction has failed", "operation", ctx.Operation().OperationID, "error", err)
	}
}

func ptr[T any](v T) *T { return &v }
