package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// decide says what an upstream's answer means. What the upstream says itself goes first, then what the
// route says, then whether another guard or gateway has refused the request, then the rules by status: those that
// mislead behind a gateway here, the others in the library.
//
// An upstream that is a proxy itself answers 502 and 504 when it has lost an answer. Its 503 and 408 may have come
// after an effect; under Rerun that does no harm.
func (r *Route) decide(status int, header http.Header, body []byte) semel.Verdict {
	if _, marked := header[unknownMark]; marked {
		return semel.VerdictUnknown
	}
	if r.KeepIf != nil && r.KeepIf.concerns(status) {
		return r.KeepIf.verdict(body)
	}
	if slices.Contains(r.ReleaseOn, status) {
		return semel.VerdictRelease
	}
	switch code := refusal.Code(header.Get("Idempotency-Code")); {
	case code == upstreamUnavailable.code, code == notForwardable.code, code == methodRefused.code, code == targetRefused.code,
		code == hostRefused.code:
		return semel.VerdictRelease // another gateway, which has sent nothing
	case code == upstreamBroken.code:
		return semel.VerdictLost
	case strings.HasPrefix(string(code), "IDEMPOTENCY_"):
		return semel.VerdictDefault // another guard, whose kind the guard knows
	}
	switch status {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return semel.VerdictLost
	case http.StatusServiceUnavailable, http.StatusRequestTimeout:
		if r.Policy.OnLost == semel.Hold {
			return semel.VerdictLost
		}
	}
	return semel.VerdictDefault
}

// A Condition says which answers are kept, by a member of their JSON bodies.
type Condition struct {
	// Pointer is a JSON Pointer to a member of the body.
	Pointer string
	// Equals is what must be there, as a JSON text of a string, number, boolean or null. Numbers are compared by their
	// text.
	Equals string
	// Exists asks for anything there, and Absent for nothing, instead of Equals. null counts as nothing.
	Exists, Absent bool
	// Statuses are those whose answers are looked at. Defaults to all 2xx.
	Statuses []int
}

func (c *Condition) concerns(status int) bool {
	if len(c.Statuses) > 0 {
		return slices.Contains(c.Statuses, status)
	}
	return status >= 200 && status < 300
}

// verdict looks into an answer. Where the condition does not hold, the route's promise is that nothing happened. Where
// that can't be told, as in a body that is not JSON or was too large to keep, there may have been an effect.
func (c *Condition) verdict(body []byte) semel.Verdict {
	pointer, err := parsePointer(c.Pointer)
	if err != nil {
		return semel.VerdictLost // refused when the route was made
	}
	got, err := scalarAt(body, pointer)
	none := errors.Is(err, errNoMember) || err == nil && got == jsonNull
	some := !none && (err == nil || errors.Is(err, errNotScalar))
	holds := false
	switch {
	case c.Exists:
		holds = some
	case c.Absent:
		holds = none
	case errors.Is(err, errNotScalar):
		return semel.VerdictLost
	default:
		want, err := scalarAt([]byte(c.Equals), nil)
		if err != nil {
			return semel.VerdictLost // as above
		}
		holds = got == want
	}
	switch {
	case holds:
		return semel.VerdictKeep
	case none, some:
		return semel.VerdictRelease
	}
	return semel.VerdictLost
}

// What an upstream can say of its answer in outcomeHeader.
const (
	outcomeKeep    = "keep"
	outcomeRelease = "release"
	outcomeUnknown = "unknown"
)

// unknownMark stands in the header of an answer of which the upstream says that its outcome is unknown, for decide to
// see. It can't be a field's name, so net/http never sends it.
const unknownMark = "(" + outcomeHeader + ": " + outcomeUnknown + ")"

// heed takes from an answer what the upstream says of it. It does so before the first byte may leave: what will
// be released must not begin to stream.
func (p *proxy) heed(res *http.Response, op *semel.Operation) {
	p.heedRetention(res, op)
	said := res.Header[outcomeHeader]
	if said == nil {
		return
	}
	delete(res.Header, outcomeHeader)
	if op == nil {
		return
	}
	outcome := ""
	if len(said) == 1 {
		outcome = said[0]
	}
	switch outcome {
	case outcomeKeep:
		op.Keep()
	case outcomeRelease:
		op.Release()
	case outcomeUnknown:
		res.Header[unknownMark] = []string{""}
	default:
		p.misunderstood(res, "upstream said something else than keep, release or unknown; it does not count", outcomeHeader, said)
	}
}

// retentionHeader is how the upstream says how long its answer is kept.
const retentionHeader = "Idempotency-Retention"

// heedRetention takes from an answer how long the upstream wants it to be kept. The route's min_retention and
// max_retention bound that.
func (p *proxy) heedRetention(res *http.Response, op *semel.Operation) {
	said := res.Header[retentionHeader]
	if said == nil {
		return
	}
	delete(res.Header, retentionHeader)
	if op == nil {
		return
	}
	if len(said) == 1 {
		if d, err := parseRetention(said[0]); err == nil && d > 0 {
			op.Retain(d)
			return
		}
	}
	p.misunderstood(res, "upstream named no time for which its answer is to be kept; it does not count", retentionHeader, said)
}

// parseRetention reads whole seconds, or a time as the configuration has them.
func parseRetention(s string) (time.Duration, error) {
	if n, err := strconv.ParseUint(s, 10, 63); err == nil {
		return time.Duration(min(n, uint64(semel.Forever/time.Second))) * time.Second, nil
	}
	return parseKept(s)
}

func (p *proxy) misunderstood(res *http.Response, what, header string, said []string) {
	p.cfg.Log.LogAttrs(res.Request.Context(), slog.LevelWarn, what,
		slog.String("header", header), slog.String("said", fmt.Sprintf("%.80q", said)),
		slog.String("endpoint", p.endpoint(res.Request)),
		slog.String("correlation", res.Request.Header.Get(p.cfg.CorrelationHeader)))
}

// answered prepares the upstream's answer for the client.
func (p *proxy) answered(res *http.Response) error {
	if res.StatusCode < 100 {
		return fmt.Errorf("the upstream answered with %03d, which is no status", res.StatusCode)
	}
	if d, ok := res.Request.Context().Value(deliveryKey{}).(*delivery); ok && len(res.Header["Content-Type"]) == 0 {
		d.header["Content-Type"] = nil // else the server would guess one
	}
	name := p.cfg.CorrelationHeader
	res.Header[name] = res.Request.Header[name]
	p.cfg.CORS.dropCORS(res.Header)
	op := semel.FromContext(res.Request.Context())
	p.heed(res, op)
	if res.StatusCode != http.StatusSwitchingProtocols {
		res.Body = &lossyBody{res.Body, p, op, res.Request.Context()}
	}
	return nil
}

// A lossyBody is the body of an answer. If the connection breaks in it, the run of a keyed request is lost; the guard
// gives the client an answer that says so, or breaks a stream that has begun. The proxy on its own would panic, and the
// reason would be lost to the record. Without a guard, or with one that only observes, the breaking is left to the
// proxy.
type lossyBody struct {
	io.ReadCloser
	proxy *proxy
	op    *semel.Operation
	ctx   context.Context //nolint:containedctx // the request's, whose answer this is
}

func (b *lossyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.proxy.failed(b.ctx, upstreamCut)
		b.op.Lost(err)
		if b.op != nil && !b.proxy.route.Policy.ObserveOnly {
			err = io.EOF
		}
	}
	return n, err
}
