package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/outbox"
)

const (
	longestQuote      = 200            // bytes of an answer that an error shows
	longestDrain      = 16 << 10       // bytes of an answer that are read so that its connection can be used again
	longestRetryAfter = 24 * time.Hour // what a receiver may ask for
)

// A failure is an answer that does not mean success.
type failure struct {
	status int
	body   string // its beginning
}

func (f *failure) Error() string {
	text := fmt.Sprintf("it has answered %d", f.status)
	if f.status >= 300 && f.status < 400 {
		text += ", and redirects are not followed"
	}
	if f.body != "" {
		text += fmt.Sprintf(": %q", f.body)
	}
	return text
}

// attempt posts a message, and returns nil if it is delivered.
func (s *Sender) attempt(ctx context.Context, r *http.Request) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	answer, err := s.client.Do(r.WithContext(ctx))
	if err != nil {
		if of := (*url.Error)(nil); errors.As(err, &of) {
			err = of.Err // of shows the URL, which may hold a secret
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("it has not answered within %v: %w", s.o.Timeout, err)
		}
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		_, _ = io.CopyN(io.Discard, answer.Body, longestDrain) // the status has said it
		return nil
	}
	beginning, _ := io.ReadAll(io.LimitReader(answer.Body, longestQuote)) // what there is of it
	_, _ = io.CopyN(io.Discard, answer.Body, longestDrain)
	err = &failure{answer.StatusCode, strings.ToValidUTF8(string(beginning), "")}
	if after := retryAfter(answer.Header.Get("Retry-After"), time.Now()); after > 0 {
		err = outbox.RetryAfter(after, err)
	}
	return err
}

// retryAfter reads Retry-After (RFC 9110, section 10.2.3): seconds or a date. What can't be read asks for nothing.
func retryAfter(text string, now time.Time) time.Duration {
	text = strings.Trim(text, " \t")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, longestRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), longestRetryAfter)
}
