// Package retry is exercise 3: a safe retry.
package retry

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel/client"
)

// Pay asks for a payment until it has a definite answer, and returns the status of that. An answer can be lost, and 503
// means that the service wants to be asked again. A card that was declined (402) is a definite answer.
//
// Change this function. The package client does it too.
func Pay(ctx context.Context, url, body string) (status int, err error) {
	for range 4 {
		var r *http.Request
		if r, err = http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body)); err != nil {
			return 0, err
		}
		r.Header["idempotency-key"] = []string{client.NewKey().Value} // in lower case, net/http does not resend by itself
		var res *http.Response
		if res, err = http.DefaultClient.Do(r); err != nil {
			continue
		}
		if err = res.Body.Close(); err == nil && res.StatusCode < 300 {
			return res.StatusCode, nil
		}
		status = res.StatusCode
	}
	return status, fmt.Errorf("no answer after 4 attempts: %w", err)
}
