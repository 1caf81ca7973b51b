package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/settings"
	"github.com/semelhq/semel/outbox"
)

// An Endpoint is where webhooks of one receiver go.
type Endpoint struct {
	// ID names the endpoint in errors and to the functions of [Options].
	ID string
	// URL is where messages are posted, with https.
	URL string
	// Secrets sign each message, as in [Sign]. While a secret is replaced there are two, the old one and the new one. Give
	// each endpoint secrets of its own.
	Secrets []string
	// Disabled endpoints get nothing. Their messages are refused for good, which makes them dead letters: they can be sent
	// again when the endpoint is enabled.
	Disabled bool
	// FailingSince is what [Options].Failing has stored. Zero means that the last delivery succeeded.
	FailingSince time.Time
}

// Endpoints finds the endpoint of a message, by its topic, key or tenant. It is called before each attempt, and
// concurrently. After an error the message is tried again later; an error that wraps [outbox.ErrRefused] refuses it for
// good. An event for several endpoints is several messages.
type Endpoints func(ctx context.Context, m *outbox.Message) (Endpoint, error)

// Options are the settings of a [Sender]. The zero value of each field means the documented default.
type Options struct {
	// Timeout is the longest that one attempt may take. Defaults to 15 s.
	Timeout time.Duration
	// Concurrency is how many messages of a batch are sent at once; [Sender.RelayOptions] makes no batch larger. Defaults to
	// 16.
	Concurrency int
	// DisableAfter is for how long every delivery to an endpoint has failed when Disable is called. Negative means never.
	// Defaults to 5 days.
	DisableAfter time.Duration
	// Disable is called when an endpoint has answered 410 Gone, or has failed for DisableAfter. It is to store that the
	// endpoint is disabled, and may tell its owner. The message is refused for good then. After an error it is not, and
	// Disable is called again at the next failure. Defaults to disabling no endpoint.
	Disable func(ctx context.Context, e Endpoint, why error) error
	// Failing is called when an endpoint begins to fail, with the time, and when it works again, with the zero time. It is
	// to store the time, so that Endpoints returns it as Endpoint.FailingSince: only so is it known to other processes, and
	// after a restart. It may be called more than once. Defaults to keeping the time in this process.
	Failing func(ctx context.Context, e Endpoint, since time.Time) error

	// AllowNetworks are networks to which messages may go, though their addresses are not public: 127.0.0.0/8 in a test,
	// or a network of yours. Whoever can set an endpoint's URL can reach every service there. Defaults to none: an
	// endpoint's address, as its name is looked up, must be public.
	AllowNetworks []netip.Prefix
	// AllowHTTP lets URLs have http, so that everybody on the way can read the messages. Defaults to https only.
	AllowHTTP bool
	// TLS is how connections are secured. Defaults to Go's settings, with the system's certificate authorities.
	TLS *tls.Config
}

// A Sender posts messages to endpoints. A status of 2xx means that the message is delivered. All else is a failure; a
// redirect too, because following it would send the message to an address that nobody has given. The receiver may say
// with Retry-After when to try again.
//
// Of Message.Headers only Content-Type is sent; it defaults to application/json.
//
// Proxies of the environment are not used: the sender could not see to which address they connect.
type Sender struct {
	publisher outbox.Publisher
	endpoints Endpoints
	o         Options
	client    http.Client
	failing   failing
}

// New returns a sender.
func New(endpoints Endpoints, o Options) (*Sender, error) {
	f := settings.Faults{Where: "options: "}
	f.If(endpoints == nil, "endpoints is nil")
	settings.Fill(&f, "Timeout", &o.Timeout, 15*time.Second)
	settings.Fill(&f, "Concurrency", &o.Concurrency, 16)
	o.DisableAfter = cmp.Or(o.DisableAfter, 5*24*time.Hour)
	allowed := make([]netip.Prefix, 0, len(o.AllowNetworks))
	for _, n := range o.AllowNetworks {
		f.If(!n.IsValid(), "AllowNetworks: a network is not valid")
		allowed = append(allowed, network.PlainPrefix(n))
	}
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("webhook sender: %w", err)
	}
	s := &Sender{endpoints: endpoints, o: o, client: http.Client{
		Transport: &http.Transport{
			DialContext:            guardedDialer(allowed),
			TLSClientConfig:        o.TLS.Clone(),
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           100,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	s.publisher = outbox.Func(o.Concurrency, s.send)
	return s, nil
}

// Publish sends each message of a batch. The error of one that was refused for good wraps [outbox.ErrRefused]; where a
// receiver has said when to try again, the error is one of [outbox.RetryAfter].
func (s *Sender) Publish(ctx context.Context, batch []*outbox.Message) []error {
	return s.publisher.Publish(ctx, batch)
}

// RelayOptions returns settings for the relay that has the sender. They let a message be tried 12 times within 5 to 6
// days: after 5 s, 5 min, 30 min, 2, 5, 10, 14, 20 hours, then three times after 24 hours, each time up to a tenth later
// at random. This is the specification's schedule and two days more, so that a single message outlasts the default of
// [Options].DisableAfter.
func (s *Sender) RelayOptions() outbox.RelayOptions {
	const spare = 5 * time.Second // for the functions of Options
	return outbox.RelayOptions{
		Batch: s.o.Concurrency, PublishTimeout: s.o.Timeout + spare, MaxAttempts: len(delays) + 1, Backoff: backoff,
	}
}

// delays are those between the attempts.
var delays = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
	20 * time.Hour, 24 * time.Hour, 24 * time.Hour, 24 * time.Hour,
}

func backoff(attempts int) time.Duration {
	d := delays[min(max(attempts, 1), len(delays))-1]
	return d + rand.N(d/10)
}

// send sends one message.
func (s *Sender) send(ctx context.Context, m *outbox.Message) error {
	if err := checkID(m.ID); err != nil {
		return fmt.Errorf("webhook %s: %w: %w", m.ID, outbox.ErrRefused, err)
	}
	e, err := s.endpoints(ctx, m)
	if err != nil {
		return fmt.Errorf("webhook %s: find its endpoint: %w", m.ID, err)
	}
	if e.Disabled {
		return fmt.Errorf("webhook %s: %w: endpoint %q is disabled", m.ID, outbox.ErrRefused, e.ID)
	}
	r, err := s.request(m, &e)
	if err != nil {
		return fmt.Errorf("webhook %s: endpoint %q: %w", m.ID, e.ID, err)
	}
	failure := s.attempt(ctx, r)
	if failure != nil && ctx.Err() != nil {
		return fmt.Errorf("webhook %s: endpoint %q: %w", m.ID, e.ID, failure) // it is the relay that gave up
	}
	if failure = s.judge(ctx, e, failure); failure != nil {
		return fmt.Errorf("webhook %s: endpoint %q: %w", m.ID, e.ID, failure)
	}
	return nil
}

// request makes the request of an attempt. Its errors are of the endpoint's settings, unless they are final.
func (s *Sender) request(m *outbox.Message, e *Endpoint) (*http.Request, error) {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		return nil, errors.New("its URL can't be parsed") // err shows it, and a URL may hold a secret
	case u.Scheme != "https" && (u.Scheme != "http" || !s.o.AllowHTTP):
		return nil, fmt.Errorf("its URL has the scheme %q, want https", u.Scheme)
	case u.Host == "" || u.User != nil:
		return nil, errors.New("its URL has no host, or has a user")
	}
	r, err := http.NewRequest(http.MethodPost, e.URL, bytes.NewReader(m.Payload))
	if err != nil {
		return nil, errors.New("its URL is not valid")
	}
	r.Header.Set("User-Agent", "semel-webhook")
	r.Header.Set("Content-Type", "application/json")
	for name, value := range m.Headers {
		if http.CanonicalHeaderKey(name) == "Content-Type" {
			r.Header.Set("Content-Type", value)
		}
	}
	if strings.ContainsFunc(r.Header.Get("Content-Type"), func(c rune) bool { return c < ' ' || c > '~' }) {
		return nil, fmt.Errorf("%w: its Content-Type is not ASCII", outbox.ErrRefused)
	}
	if err := Sign(r.Header, m.ID, time.Now(), m.Payload, e.Secrets...); err != nil {
		return nil, err
	}
	return r, nil
}
