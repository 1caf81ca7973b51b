package semel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/internal/credentials"
	"github.com/semelhq/semel/internal/fingerprint"
	"github.com/semelhq/semel/internal/keyformat"
	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/refusal"
)

// identify finds out who asks for what, and fills x.ask. Else it says that the request carries no key, or that it is
// part of the run that it asks for, or it refuses the request. Nothing is run or stored before identify has succeeded.
func (x *exchange) identify() *Problem {
	g, p := x.g, x.g.policy
	x.ask.kind = KindHTTP
	x.ask.Operation = p.Operation
	if x.ask.Operation == "" {
		x.ask.Operation = operationName(x.r)
	}
	key, problem := x.headerKey()
	if problem != nil {
		return problem
	}
	if p.KeyField != "" {
		if problem := x.readBody(); problem != nil {
			return problem
		}
		if key, problem = x.fieldKey(key); problem != nil {
			return problem
		}
	}
	if key == "" && p.Mint != nil && p.methods[x.r.Method] {
		if key, problem = x.mintKey(); problem != nil {
			return problem
		}
	}
	if key == "" {
		x.unkeyed = true
		if !p.KeyOptional && p.methods[x.r.Method] {
			return g.problem(refusal.KeyMissing, "send the header "+strings.Join(p.KeyHeaders, " or "))
		}
		return nil
	}
	x.ask.key = key
	if x.ask.scope, problem = x.principal(); problem != nil {
		return problem
	}
	if p.PerOperation {
		x.ask.key += "\x00" + x.r.Method + " " + fingerprint.TargetPath(x.r) // a key holds no NUL
	}
	x.ask.ID = g.identity.ID(string(KindHTTP), x.ask.scope, x.ask.key)
	if x.own = g.runs(x.r.Context(), x.ask.ID); x.own {
		return nil
	}
	if len(x.r.Header["Early-Data"]) > 0 {
		return g.problem(refusal.EarlyData, "") // any value counts as 1 (RFC 8470, section 5.1)
	}
	if x.body == nil {
		if problem := x.readBody(); problem != nil {
			return problem
		}
	}
	if err := fingerprint.CheckContentDigest(x.r.Header, x.body); err != nil {
		return g.bodyProblem(err)
	}
	var err error
	if x.ask.Fingerprint, err = p.fingerprinter.Of(g.identity, &g.recent, x.ask.ID, x.r, x.body); err != nil {
		return g.bodyProblem(err)
	}
	x.ask.credentials = credentials.Of(g.identity, &x.ask.ID, p.Credentials, x.r)
	x.heedPreferences()
	return nil
}

// runs reports whether ctx belongs to a run of the operation, which another guard on the same store has begun. The
// request has been claimed by that run, and must not wait for itself.
func (g *Guard) runs(ctx context.Context, id driver.ID) bool {
	op := FromContext(ctx)
	return op != nil && op.ask.ID == id && sameStore(op.run.Store(), g.engine.Store())
}

func sameStore(a, b driver.Store) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// operationName is the name of a route that has no name of its own. The client chooses the path: so it is cut, and left
// escaped, so that any store and log can take it.
func operationName(r *http.Request) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	const longest = 200
	path := fingerprint.TargetPath(r)
	return r.Method + " " + path[:min(len(path), longest)]
}

// headerKey returns the key that the headers carry, or "".
func (x *exchange) headerKey() (string, *Problem) {
	var key string
	for _, name := range x.g.policy.KeyHeaders {
		lines := x.r.Header[name]
		if len(lines) == 0 {
			continue
		}
		k, err := keyformat.Parse(lines, x.g.policy.KeyFormat.format())
		switch {
		case err != nil:
			return "", x.g.problem(refusal.KeyInvalid, name+": "+detailOf(err, refusal.KeyInvalid)).because(err)
		case key == "":
			key, x.keyHeader, x.keyValue = k, name, lines[0]
		case k != key:
			return "", x.g.problem(refusal.KeyInvalid, x.keyHeader+" and "+name+" carry different keys")
		}
	}
	return key, nil
}

// fieldKey takes the key from a field of the body, if there is one. key is the key of the headers.
func (x *exchange) fieldKey(key string) (string, *Problem) {
	field := x.g.policy.KeyField
	v, found, err := fingerprint.KeyField(x.body, x.r.Header["Content-Type"], field)
	switch {
	case err != nil:
		return "", x.g.problem(refusal.KeyInvalid, err.Error()).because(err)
	case !found:
		return key, nil
	}
	given, err := keyformat.Check(v, x.g.policy.KeyFormat.format())
	switch {
	case err != nil:
		return "", x.g.problem(refusal.KeyInvalid, "body field "+field+": "+detailOf(err, refusal.KeyInvalid)).because(err)
	case key != "" && key != given:
		return "", x.g.problem(refusal.KeyInvalid, x.keyHeader+" and body field "+field+" carry different keys")
	case key == "":
		x.keyHeader, x.keyValue = x.g.policy.KeyHeaders[0], v
	}
	return given, nil
}

// mintKey makes the key of a request that carries none, or returns "".
func (x *exchange) mintKey() (string, *Problem) {
	if x.body == nil {
		if problem := x.readBody(); problem != nil {
			return "", problem
		}
	}
	p := x.g.policy
	x.body.Lent = true
	key, err := p.Mint(x.shown(), x.body.Plain)
	switch {
	case err != nil:
		return "", x.g.problem(refusal.KeyInvalid, "no key was sent, and none can be made: "+err.Error()).because(err)
	case key == "":
		return "", nil
	}
	if _, err := keyformat.Check(key, &keyformat.Format{}); err != nil {
		return "", x.g.problem(refusal.KeyInvalid, "no key was sent, and the one made is not valid").because(err)
	}
	x.keyHeader, x.keyValue, x.ask.minted = p.KeyHeaders[0], key, true
	return p.KeyFormat.format().Compared(key), nil
}

// detailOf is the part of an error that follows the text of its kind. The problem has that text already.
func detailOf(err, kind error) string {
	_, detail, _ := strings.Cut(err.Error(), kind.Error()+": ")
	return detail
}

func (x *exchange) readBody() *Problem {
	p := x.g.policy
	var src io.Reader = x.r.Body
	if x.r.Body == nil {
		src = http.NoBody
	} else if x.copied != nil {
		src = io.TeeReader(src, x.copied)
	}
	if x.received == nil {
		x.received = newReceived()
	}
	body, err := requestbody.Read(src, requestbody.Options{
		Limit: p.MaxRequestBody, Memory: p.SpoolRequestAbove, Dir: x.g.tempDir,
		Length: x.r.ContentLength, Coding: x.r.Header["Content-Encoding"], Reuse: &x.received.body,
		Principal: x.ask.ID.Scope(), Held: &x.g.held, Files: &x.g.files,
	})
	switch {
	case err != nil && requestbody.ClosedAbove(err):
		return x.consumed("it was closed")
	case err != nil:
		return x.g.bodyProblem(err)
	}
	x.body = body
	if how := body.ReadAbove(x.r); how != "" {
		return x.consumed(how)
	}
	return nil
}

// bodyProblem is the refusal of a request whose body could not be accepted.
func (g *Guard) bodyProblem(err error) *Problem {
	switch {
	case errors.Is(err, refusal.BodyTooLarge):
		return g.problem(refusal.BodyTooLarge, detailOf(err, refusal.BodyTooLarge)).because(err)
	case errors.Is(err, refusal.DigestMismatch):
		return g.problem(refusal.DigestMismatch, "").because(err)
	case errors.Is(err, fingerprint.ErrRedact):
		p := g.problem(refusal.RequestUnreadable, fingerprint.ErrRedact.Error()+": "+detailOf(err, fingerprint.ErrRedact)).because(err)
		p.Retryable = false
		return p
	case errors.Is(err, fingerprint.ErrAmbiguous):
		p := g.problem(refusal.RequestUnreadable, "in its JSON "+fingerprint.ErrAmbiguous.Error()).because(err)
		p.Retryable = false
		return p
	case errors.Is(err, budget.ErrNoRoom):
		p := g.problem(refusal.StoreUnavailable, budget.ErrNoRoom.Error()+"; ask again after the time in Retry-After").because(err)
		p.shut = true // failing open is for the store's failures only
		return p
	case errors.Is(err, requestbody.ErrSpooled):
		return g.problem(refusal.StoreUnavailable, "").because(err)
	}
	return g.problem(refusal.RequestUnreadable, "").because(err)
}

func (x *exchange) closeBody() {
	if x.body != nil {
		x.body.Close() //nolint:errcheck // only the removal of a temporary file can fail, and nobody can correct that here
	}
}
