package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/semelhq/semel/verify"
)

// scenario returns the scenario of a file, with what the flags say.
func (p *program) scenario(c *commandLine) (*verify.Scenario, error) {
	s := new(verify.Scenario)
	switch {
	case c.Scenario != "":
		text, err := p.read(c.Scenario)
		if err != nil {
			return nil, err
		}
		if s, err = verify.ReadScenario(text); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Scenario, err)
		}
		if c.Target != "" {
			s.Target = c.Target
		}
	case c.Target == "":
		return nil, errors.New("--target or --scenario is needed")
	default:
		at, err := url.Parse(c.Target)
		if err != nil {
			return nil, fmt.Errorf("--target: %w", err)
		}
		s.Request.Path = at.RequestURI()
		s.Target = (&url.URL{Scheme: at.Scheme, Host: at.Host}).String()
		if at.Host == "" {
			s.Target = c.Target // for its error
		}
	}
	if c.Method != "" {
		s.Request.Method = c.Method
	}
	if c.Body != "" {
		body := c.Body
		if name, isFile := strings.CutPrefix(body, "@"); isFile {
			text, err := p.read(name)
			if err != nil {
				return nil, fmt.Errorf("--body: %w", err)
			}
			body = string(text)
		}
		s.Request.Body = &body
	}
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("--header: %q has no colon", line)
		}
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		s.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	if c.Answers != "" {
		s.Effects = verify.Effects{Answers: c.Answers}
	}
	if c.Profile != "" {
		s.Profile = c.Profile
	}
	for _, d := range []struct {
		flag verify.Duration
		to   *verify.Duration
	}{{c.Lease, &s.Lease}, {c.Later, &s.Later}, {c.Timeout, &s.Timeout}} {
		if d.flag != 0 {
			*d.to = d.flag
		}
	}
	if err := s.Complete(); err != nil {
		return nil, err
	}
	if c.Rate < 0 || c.Duration <= 0 {
		return nil, errors.New("--rate and --duration must be above zero")
	}
	if c.Rate == 0 && c.Faults > 0 {
		return nil, errors.New("--faults needs a load: --rate says how large")
	}
	if c.Rate == 0 && (c.MinSuccess > 0 || c.MaxP99 > 0 || c.MaxDuplicates > 0) {
		return nil, errors.New("--min-success, --max-p99 and --max-duplicates bound a load: --rate says how large")
	}
	return s, nil
}

// read reads a file, or standard input for "-".
func (p *program) read(name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name) //nolint:gosec // the user has named it
	}
	return io.ReadAll(p.stdin)
}
