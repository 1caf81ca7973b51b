package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/processor"
)

// cards is the card processor, as the shop sees it. It recognises a repetition by its key: package client sends the one
// that is derived for the step in which a call is made, and repeats the call when its answer is lost.
type cards struct {
	url  string
	http *http.Client
}

func newCards(address string) (*cards, error) {
	t, err := client.New(nil, client.Options{Classify: classify})
	if err != nil {
		return nil, fmt.Errorf("make the client of the card processor: %w", err)
	}
	return &cards{address, &http.Client{Transport: t}}, nil
}

// classify knows the refusals of this processor. It looks for the key before it decides. So a refusal by another code
// says that nothing has moved under the key, though an earlier attempt may have arrived.
func classify(a *client.Answer, _ bool) client.Verdict {
	switch codeOf(a.Body) {
	case "too_much", "voided", "captured", "not_found", "invalid":
		return client.VerdictAnswer
	}
	return ""
}

func codeOf(body []byte) string {
	var said struct{ Error struct{ Code string } }
	_ = json.Unmarshal(body, &said) // what is no JSON has no code
	return said.Error.Code
}

// A receipt is what the card processor has answered for good. It moved money if it has an id.
type receipt struct {
	ID       string `json:"id,omitempty"`
	Declined bool   `json:"declined,omitempty"`
	Refused  string `json:"refused,omitempty"` // why; then nothing moved
}

// patience is how long a call of the card processor may take, with its repeats.
const patience = 30 * time.Second

// post asks the processor to move money. After an error it may have moved all the same.
func (c *cards) post(ctx context.Context, key client.Key, path string, body any) (receipt, error) {
	a, err := c.send(ctx, http.MethodPost, key, path, body)
	if err != nil {
		return receipt{}, err
	}
	var said struct {
		ID    string
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(a.Body, &said); err != nil {
		return receipt{}, fmt.Errorf("read the card processor's answer: %w", err)
	}
	switch {
	case a.Status == http.StatusCreated && said.ID != "":
		return receipt{ID: said.ID}, nil
	case a.Status == http.StatusPaymentRequired:
		return receipt{Declined: true}, nil
	case a.Status == http.StatusConflict && said.Error.Code != "key_closed", a.Status == http.StatusNotFound, a.Status == http.StatusBadRequest:
		return receipt{Refused: said.Error.Message}, nil
	}
	return receipt{}, fmt.Errorf("the card processor answers %d: %s", a.Status, said.Error.Message)
}

// settled finds out what became of a call by its key. If the call never came, it is refused from then on: up to a
// fence, or for good if that is 0. found says that it came.
func (c *cards) settled(ctx context.Context, key string, fence uint64) (r receipt, found bool, err error) {
	body := map[string]any{"key": key}
	if fence > 0 {
		body["fence"] = fence
	}
	a, err := c.send(ctx, http.MethodPost, client.Key{}, "/closures", body)
	switch {
	case err != nil:
		return r, false, err
	case a.Status == http.StatusNoContent:
		return r, false, nil
	case a.Status != http.StatusOK:
		return r, false, fmt.Errorf("the card processor answers %d: %s", a.Status, a.Body)
	}
	var e processor.Entry
	if err := json.Unmarshal(a.Body, &e); err != nil {
		return r, false, fmt.Errorf("read the card processor's answer: %w", err)
	}
	if e.Kind == processor.Decline {
		return receipt{Declined: true}, true, nil
	}
	return receipt{ID: e.ID}, true, nil
}

func (c *cards) send(ctx context.Context, method string, key client.Key, path string, body any) (*client.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("ask the card processor: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("ask the card processor: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	if op := semel.FromContext(ctx); op != nil {
		r.Header.Set("Idempotency-Fence", strconv.FormatUint(op.Fence(), 10))
	}
	a, err := client.Do(ctx, c.http, key, r)
	if err != nil {
		return nil, fmt.Errorf("ask the card processor: %w", err)
	}
	return a, nil
}

func (c *cards) authorize(ctx context.Context, key client.Key, p processor.Purchase) (receipt, error) {
	return c.post(ctx, key, "/authorizations", p)
}

func (c *cards) charge(ctx context.Context, key client.Key, p processor.Purchase) (receipt, error) {
	return c.post(ctx, key, "/charges", p)
}

func (c *cards) capture(ctx context.Context, key client.Key, authorization string) (receipt, error) {
	return c.post(ctx, key, "/authorizations/"+url.PathEscape(authorization)+"/capture", processor.Part{})
}

func (c *cards) void(ctx context.Context, key client.Key, authorization string) (receipt, error) {
	return c.post(ctx, key, "/authorizations/"+url.PathEscape(authorization)+"/void", processor.Part{})
}

func (c *cards) refund(ctx context.Context, key client.Key, r processor.Return) (receipt, error) {
	return c.post(ctx, key, "/refunds", r)
}

// noAnswer says that a call of the card processor failed. Money may have moved.
func (s *Shop) noAnswer(ctx context.Context, err error) *Problem {
	s.o.Log.WarnContext(ctx, "the card processor gives no answer", "error", err)
	return again(http.StatusBadGateway, "no_answer_from_processor", "the card processor gives no answer")
}
