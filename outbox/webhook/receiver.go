package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/settings"
)

// A Source is who sends webhooks, as their receiver knows it.
type Source struct {
	// Name tells sources apart: the same id from two sources is two messages.
	Name string
	// Secrets are those that may have signed, as in [Sign]: one, or two while the source replaces its secret. None means
	// that the source is not known; its requests are refused like those with a wrong signature.
	Secrets []string
}

// ReceiverOptions are the settings of a [Receiver]. The zero value of each field means the documented default.
type ReceiverOptions struct {
	// Tolerance is how far the time of an attempt may be from this machine's clock, before or after it. Defaults to 5 min.
	Tolerance time.Duration
	// Retention is how long an id is remembered; it replaces Policy.Retention of the guard if it is longer. It is to be
	// longer than sources try again, by themselves or by hand. Defaults to 7 days.
	Retention time.Duration
}

// Defaults of [ReceiverOptions].
const (
	defaultTolerance         = 5 * time.Minute
	defaultReceiverRetention = 7 * 24 * time.Hour
)

// A Receiver is a middleware that accepts webhooks. A request must be a POST with a webhook-id, a timestamp of now, and
// a signature of its source; else it is refused before anything is run or stored. The guard then runs the handler once
// for each source and id. A redelivery has another timestamp and another signature, and gets the first answer.
//
// An answer that is not 2xx says that nothing has happened: sources deliver again after it, and that runs the handler
// again. A handler that has had an effect all the same calls Operation.Keep. A run that was lost is treated as the
// guard's policy says (Hold or Rerun).
type Receiver struct {
	guard     *semel.Guard
	source    func(*http.Request) (Source, error)
	tolerance time.Duration
	limit     int64
}

// NewReceiver returns a receiver. The guard's scope has to tell sources apart: it is semel.ScopeFunc([Scope]), or makes
// use of Scope. The guard's policy is used, but with the key in webhook-id alone, with KeepOnlySuccess, and with the
// Retention of the options; Policy.MaxRequestBody is the largest payload. source says who claims to send a request, by
// its path for example. It is called concurrently; it can't read the body, and its error is answered with 503.
func NewReceiver(guard *semel.Guard, source func(*http.Request) (Source, error), o ReceiverOptions) (*Receiver, error) {
	if guard == nil || source == nil {
		return nil, errors.New("webhook receiver: guard or source is nil")
	}
	var f settings.Faults
	settings.Fill(&f, "Tolerance", &o.Tolerance, defaultTolerance)
	settings.Fill(&f, "Retention", &o.Retention, defaultReceiverRetention)
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("webhook receiver: %w", err)
	}
	p := guard.Policy()
	p.Methods, p.KeyHeaders = []string{http.MethodPost}, []string{idHeader}
	p.KeyOptional, p.KeyField, p.Mint, p.KeyFormat = false, "", nil, semel.KeyFormat{}
	p.KeepOnlySuccess = true
	p.Retention = max(p.Retention, o.Retention)
	p.MaxRetention = max(p.MaxRetention, p.Retention)
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("webhook receiver: %w", err)
	}
	return &Receiver{guard: guard.Route(p), source: source, tolerance: o.Tolerance, limit: p.MaxRequestBody}, nil
}

// notInKeys are characters that an id must not have for the guard: a key in quotes would be the same key without them.
const notInKeys = `"\,;`

type sourceKey struct{}

// Scope returns the principal of a request that a [Receiver] has verified: "webhook:" and its source's name. For other
// requests it is an error.
func Scope(r *http.Request) (string, error) {
	name, ok := r.Context().Value(sourceKey{}).(string)
	if !ok {
		return "", errors.New("no receiver of webhooks has verified the request")
	}
	return "webhook:" + name, nil
}

// Wrap returns a handler that verifies webhooks and runs next once for each. No layer above it may read the body.
func (rc *Receiver) Wrap(next http.Handler) http.Handler {
	protected := rc.guard.Wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, payload, refused := rc.accept(r)
		if refused != nil {
			refused.write(w)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), sourceKey{}, name))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(payload)), int64(len(payload))
		protected.ServeHTTP(w, r)
	})
}

// accept verifies a request, and returns its source's name and its body.
func (rc *Receiver) accept(r *http.Request) (name string, payload []byte, refused *refused) {
	if r.Method != http.MethodPost {
		return "", nil, refuse(http.StatusMethodNotAllowed, "a webhook is a POST")
	}
	for _, header := range []string{idHeader, timestampHeader, signatureHeader} {
		if len(r.Header[header]) != 1 || r.Header[header][0] == "" {
			return "", nil, refuse(http.StatusBadRequest, "want one header "+header)
		}
	}
	id, timestamp := r.Header[idHeader][0], r.Header[timestampHeader][0]
	at, ok := parseTimestamp(timestamp)
	if err := checkID(id); err != nil {
		return "", nil, refuse(http.StatusBadRequest, "webhook-id: "+err.Error())
	}
	if strings.ContainsAny(id, notInKeys) {
		return "", nil, refuse(http.StatusBadRequest, "webhook-id has one of the characters "+notInKeys)
	}
	if !ok {
		return "", nil, refuse(http.StatusBadRequest, "webhook-timestamp is not a number of seconds")
	}
	if age := time.Since(at); age > rc.tolerance || age < -rc.tolerance {
		return "", nil, refuse(http.StatusUnauthorized, "webhook-timestamp is too far from this server's time")
	}
	source, err := rc.source(r)
	if err != nil {
		return "", nil, refuse(http.StatusServiceUnavailable, "the sender can't be looked up at the moment")
	}
	var keys [][]byte
	if len(source.Secrets) > 0 {
		if keys, err = parseSecrets(source.Secrets); err != nil {
			return "", nil, refuse(http.StatusInternalServerError, "the receiver's settings: "+err.Error())
		}
	}
	payload, refused = rc.read(r)
	if refused != nil {
		return "", nil, refused
	}
	if !signed(r.Header[signatureHeader][0], keys, id, timestamp, payload) {
		return "", nil, refuse(http.StatusUnauthorized, "no signature in webhook-signature is right")
	}
	return source.Name, payload, nil
}

func (rc *Receiver) read(r *http.Request) ([]byte, *refused) {
	if r.ContentLength > rc.limit {
		return nil, rc.tooLarge()
	}
	if r.Body == nil {
		return nil, nil
	}
	payload, err := io.ReadAll(io.LimitReader(r.Body, rc.limit+1))
	switch large := (*http.MaxBytesError)(nil); {
	case int64(len(payload)) > rc.limit, errors.As(err, &large):
		return nil, rc.tooLarge()
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body could not be read")
	case int64(len(payload)) < r.ContentLength:
		return nil, refuse(http.StatusInternalServerError, "a layer above the receiver has read the body")
	}
	return payload, nil
}

func (rc *Receiver) tooLarge() *refused {
	return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", rc.limit))
}

// refused is an answer of the receiver's own, as application/problem+json (RFC 9457).
type refused struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func refuse(status int, detail string) *refused {
	return &refused{Title: "the webhook was not accepted", Status: status, Detail: detail}
}

func (p *refused) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Webhook-Signature") // a 401 must say how (RFC 9110, section 15.5.2)
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "5")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // nobody is left to tell
}
