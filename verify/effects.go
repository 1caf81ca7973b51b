package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
)

// count returns how many effects there are by now, all together. It is not for scenarios that count by answers.
func (t *target) count(ctx context.Context) (int, error) {
	e := &t.scenario.Effects
	if e.Command != "" {
		out, err := t.shell(ctx, e.Command)
		if err != nil {
			return 0, fmt.Errorf("count effects: %w", err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil {
			return 0, fmt.Errorf("count effects: the command printed %.80q, not a number", out)
		}
		return n, nil
	}
	r := request{method: http.MethodGet, path: e.URL}
	for name, value := range t.scenario.Headers {
		r.headers = append(r.headers, field{name, value})
	}
	for name, value := range e.Headers {
		r = r.with(name, value)
	}
	a := t.wire.exchange(ctx, r, manner{})
	switch {
	case a.err != nil:
		return 0, fmt.Errorf("count effects: GET %s: %w", e.URL, a.err)
	case a.status != http.StatusOK:
		return 0, fmt.Errorf("count effects: GET %s: status %d", e.URL, a.status)
	}
	n, err := countAt(a.body, e.Pointer)
	if err != nil {
		return 0, fmt.Errorf("count effects: GET %s: %w", e.URL, err)
	}
	return n, nil
}

// countAt returns the number at a pointer, or how many members are there.
func countAt(body []byte, pointer string) (int, error) {
	v, err := valueAt(body, pointer)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	case json.Number:
		n, err := strconv.Atoi(v.String())
		if err != nil {
			return 0, fmt.Errorf("at %q is %s, not a whole number", pointer, v)
		}
		return n, nil
	}
	return 0, fmt.Errorf("at %q is neither a number, nor an array or an object", pointer)
}

// valueAt returns what a JSON Pointer (RFC 6901) finds.
func valueAt(body []byte, pointer string) (any, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if pointer == "" {
		return v, nil
	}
	for _, step := range strings.Split(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		var found bool
		switch at := v.(type) {
		case map[string]any:
			v, found = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if found = err == nil && i >= 0 && i < len(at); found {
				v = at[i]
			}
		}
		if !found {
			return nil, fmt.Errorf("the answer has nothing at %q", pointer)
		}
	}
	return v, nil
}

// effectOf returns what is different for each effect, from the answer to one.
func (e *Effects) effectOf(a *answer) (string, error) {
	if e.Answers[0] != '/' {
		if v := a.header.Get(e.Answers); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("the answer has no field %s", e.Answers)
	}
	v, err := valueAt(a.body, e.Answers)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	return string(text), err
}

// byAnswers reports whether effects are counted by what answers tell of.
func (e *Effects) byAnswers() bool { return e.Answers != "" }

// shell runs a command of the scenario and returns what it printed.
func (t *target) shell(ctx context.Context, command string) (string, error) {
	c := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // the scenario's author says what to run
	c.WaitDelay = shellDelay
	out, err := c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %.300s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // it has left a process behind, as one that restarts a server does
		return "", fmt.Errorf("run %q: %w", command, err)
	}
	return string(out), nil
}
