package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
)

// outcomeHeader is how the upstream says what became of an operation: in an answer to a question, done or never.
const outcomeHeader = "Idempotency-Outcome"

// questionTime bounds one question to the upstream.
const questionTime = 10 * time.Second

// A question is the address on the upstream at which it can be asked what became of an operation.
type question struct {
	upstream *url.URL
	template string
}

// operationPlace stands for the operation's public id in a question's template.
const operationPlace = "{operation}"

// newQuestion reads a template such as /internal/operations/{operation}: a path on the upstream, and a query if need
// be.
func newQuestion(upstream *url.URL, template string) (question, error) {
	q := question{upstream, template}
	switch left := strings.Replace(template, operationPlace, "", 1); {
	case !strings.HasPrefix(template, "/"):
		return q, fmt.Errorf("reconcile %q: want a path on the upstream, such as /internal/operations/{operation}", template)
	case left == template:
		return q, fmt.Errorf("reconcile %q: {operation} must stand where the operation's id belongs", template)
	case strings.ContainsAny(left, "{}"):
		return q, fmt.Errorf("reconcile %q: {operation} is the only thing that can be filled in, and once", template)
	case strings.Contains(left, "#"):
		return q, fmt.Errorf("reconcile %q: a fragment is not sent", template)
	}
	if _, err := q.about(driver.ID{}); err != nil {
		return q, err
	}
	return q, nil
}

// about returns the address for an operation.
func (q question) about(id driver.ID) (*url.URL, error) {
	at, err := url.Parse(strings.Replace(q.template, operationPlace, id.String(), 1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reconcile %q: %w", q.template, err)
	case at.Host != "":
		return nil, fmt.Errorf("reconcile %q: want a path on the upstream, not another host", q.template)
	}
	u := q.upstream.JoinPath(at.EscapedPath())
	u.RawQuery = at.RawQuery
	return u, nil
}

// ask asks the upstream. Only what it says in so many words counts: a bare 404 may come from whoever stands before it,
// or from an instance that has not heard of the operation yet.
func (r *reconciler) ask(ctx context.Context, route *reconcileRoute, q semel.Inquiry) (semel.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTime)
	defer cancel()
	at, err := route.question.about(q.ID)
	if err != nil {
		return semel.Finding{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return semel.Finding{}, err
	}
	req.Header.Set("User-Agent", "semel")
	req.Header.Set("Idempotency-Operation", q.ID.String())
	req.Header.Set("Idempotency-Fence", strconv.FormatUint(q.Fence, 10))
	req.Header.Set("Idempotency-Attempt", strconv.Itoa(q.Attempt))
	if r.header != "" && plainID(q.Correlation) {
		req.Header.Set(r.header, q.Correlation)
	}
	res, err := r.client.Do(req)
	if err != nil {
		return semel.Finding{}, err
	}
	defer res.Body.Close()

	said := res.Header.Values(outcomeHeader)
	outcome := ""
	if len(said) == 1 {
		outcome = said[0]
	}
	finding := semel.Finding{Reason: fmt.Sprintf("the upstream answered %d with %s %q", res.StatusCode, outcomeHeader, said)}
	switch {
	case outcome == "done" && res.StatusCode/100 == 2:
		answer, err := answerOf(res, orDefault(route.maxAnswer, defaults.MaxResponseBody))
		if err != nil {
			return semel.Finding{}, fmt.Errorf("read the answer: %w", err)
		}
		finding.Found, finding.Answer = semel.FoundDone, answer
	case outcome == "never":
		finding.Found = semel.FoundNever
	default:
		io.CopyN(io.Discard, res.Body, 4<<10) //nolint:errcheck // only so that the connection can be used again
	}
	return finding, nil
}

// answerOf reads the answer that the upstream gives for the operation, without what it says about it; nil if it is too
// large to be kept.
func answerOf(res *http.Response, limit int64) (*driver.Response, error) {
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(body)) > limit:
		return nil, nil
	}
	header := res.Header.Clone()
	header.Del(outcomeHeader)
	header.Del(retentionHeader)
	trailer := res.Trailer.Clone()
	trailer.Del(outcomeHeader)
	return &driver.Response{Status: res.StatusCode, Header: header, Trailer: trailer, Body: body}, nil
}

func orDefault(n, otherwise int64) int64 {
	if n <= 0 {
		return otherwise
	}
	return n
}
