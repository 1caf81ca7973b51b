package retry

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel/client"
)

// One key for one wish, made before the first attempt. The transport repeats what may be repeated, with it.
func solved(ctx context.Context, url, body string) (status int, err error) {
	transport, err := client.New(nil, client.Options{Backoff: client.FullJitter(time.Millisecond, 10*time.Millisecond)})
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	res, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}
