package verify

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// A Scenario says what to ask of a target, and what to know of it. Texts of requests may have placeholders for
// generated fields, such as ${uuid}: within one operation each stands for one value, and another operation has another.
type Scenario struct {
	// Target is the URL of the API, with what stands before all paths.
	Target string `yaml:"target"`
	// Profile is the dialect: draft07, stripe, or custom, which is Custom.
	Profile string  `yaml:"profile"`
	Custom  Profile `yaml:"custom"`
	// Fields names generated fields, each with its kind: uuid, sequence, word or amount.
	Fields map[string]string `yaml:"fields"`
	// Request is one that succeeds, and has one effect.
	Request Template `yaml:"request"`
	// Headers stand in every request; those of the first tenant too, unless a check is about tenants.
	Headers map[string]string `yaml:"headers"`
	// Tenants are two principals that must never meet.
	Tenants []Tenant `yaml:"tenants"`
	// Variants are requests like Request that are answered in special ways. docs/verify.md lists their names.
	Variants map[string]Template `yaml:"variants"`
	// Effects says how to count effects.
	Effects Effects `yaml:"effects"`
	// Read is the path of something that can be read with GET, for the check of methods.
	Read string `yaml:"read"`
	// Process says how to hurt the target.
	Process Process `yaml:"process"`
	// Lease is how long the target keeps a request for in progress after a crash. Defaults to 30 s.
	Lease Duration `yaml:"lease"`
	// Retention is how long the target keeps answers; Later has to be shorter. Defaults to longer than anything waits.
	Retention Duration `yaml:"retention"`
	// Later is how long the check "repeat-later" waits at least. Defaults to 1 m, and to half of the retention if that is
	// less.
	Later Duration `yaml:"later"`
	// Timeout is how long an answer may take. Defaults to 10 s, and is never less than twice the slow variant takes.
	Timeout Duration `yaml:"timeout"`
	// Concurrent is how many requests the check "concurrent" sends at once. Defaults to 20.
	Concurrent int `yaml:"concurrent"`

	profile Profile
	base    *url.URL
	source  source
}

// A Template is a request with placeholders. What a variant leaves out is as in Request.
type Template struct {
	Method  string            `yaml:"method"`
	Path    string            `yaml:"path"` // with the query, if any
	Headers map[string]string `yaml:"headers"`
	Body    *string           `yaml:"body"`
	// Takes is how long the request is under way in the target before its effect, for the variant "slow"; for
	// "slow-answer" between effect and answer.
	Takes Duration `yaml:"takes"`
}

// A Tenant is who asks.
type Tenant struct {
	Name    string            `yaml:"name"`
	Headers map[string]string `yaml:"headers"` // such as Authorization
}

// Effects says how to count them, in one of three ways.
type Effects struct {
	// URL is asked with GET, relative to the target, and Pointer (RFC 6901) finds the number of effects in its JSON, or an
	// array or an object with a member for each.
	URL     string            `yaml:"url"`
	Pointer string            `yaml:"pointer"`
	Headers map[string]string `yaml:"headers"`
	// Command prints the number; it is run by the shell.
	Command string `yaml:"command"`
	// Answers finds, in the JSON of an answer, what is different for each effect; a name instead of a pointer is that of a
	// header field. It sees only effects that answers tell of.
	Answers string `yaml:"answers"`
}

// Process says how to hurt the target, by commands that the shell runs. All are optional.
type Process struct {
	Crash   string `yaml:"crash"`   // ends it at once, as SIGKILL does
	Restart string `yaml:"restart"` // starts it again, with what it had stored; returns when it runs
	Pause   string `yaml:"pause"`   // stops it, as SIGSTOP does
	Resume  string `yaml:"resume"`
	// Ready is a path that answers 2xx when the target can be asked again. Without one a connection is enough.
	Ready string `yaml:"ready"`
}

// Duration is a time such as 30s or 1m30s.
type Duration time.Duration

// UnmarshalText reads what [time.ParseDuration] does, if it is not negative.
func (d *Duration) UnmarshalText(text []byte) error {
	t, err := time.ParseDuration(string(text))
	if err != nil || t < 0 {
		return fmt.Errorf("%q is not a time such as 30s or 1m30s", text)
	}
	*d = Duration(t)
	return nil
}

// variants are the special requests by name.
var variants = map[string]string{
	"slow":        "takes its time before its effect (takes says how long)",
	"slow-answer": "takes its time after its effect, before its answer (takes says how long)",
	"declined":    "is answered by a definitive 4xx of the business, such as 402 or 422, without an effect",
	"failing":     "is answered 500 after its effect",
	"limited":     "is answered 429 at first",
	"dropped":     "has its effect, and then the service closes the connection without an answer",
	"large":       "has a large answer, 1 MB or so",
	"empty":       "has an answer without a body",
	"binary":      "has an answer that is no text",
	"stream":      "is answered as a stream of events",
}

const (
	defaultLease      = 30 * time.Second
	defaultLater      = time.Minute
	defaultTimeout    = 10 * time.Second
	defaultConcurrent = 20
	maxConcurrent     = 1000
)

// ReadScenario reads a scenario in YAML. Errors say where a mistake stands.
func ReadScenario(text []byte) (*Scenario, error) {
	s := new(Scenario)
	if err := yaml.UnmarshalWithOptions(text, s, yaml.Strict()); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	return s, nil
}

// Complete checks the scenario, and puts in what it leaves out. It returns all that is wrong.
func (s *Scenario) Complete() error {
	var errs []error
	wrong := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }

	base, err := url.Parse(s.Target)
	switch {
	case s.Target == "":
		wrong("target: the URL of the API is needed")
	case err != nil:
		wrong("target: %w", err)
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		wrong("target: %q is not an http:// or https:// URL", s.Target)
	case base.User != nil:
		wrong("target: it has a user; credentials belong to the headers, such as Authorization")
	case base.RawQuery != "" || base.Fragment != "":
		wrong("target: %q has a query or a fragment; those belong to the request's path", s.Target)
	default:
		base.Path = strings.TrimRight(base.Path, "/")
		s.base = base
	}

	if s.Profile == "" {
		s.Profile = DefaultProfile
	}
	switch p, known := profiles[s.Profile]; {
	case known:
		s.profile = p
	case s.Profile == custom:
		s.profile = s.Custom
		if err := s.profile.check(); err != nil {
			wrong("custom: %w", err)
		}
	default:
		wrong("profile: %q is none of %s, %s", s.Profile, strings.Join(slices.Sorted(maps.Keys(profiles)), ", "), custom)
	}

	for name, kind := range s.Fields {
		if generators[kind] == nil {
			wrong("fields: %s: %q is none of %s", name, kind, strings.Join(slices.Sorted(maps.Keys(generators)), ", "))
		}
	}
	if s.Request.Method == "" {
		s.Request.Method = "POST"
	}
	if s.Request.Path == "" {
		s.Request.Path = "/"
	}
	errs = append(errs, s.checkRequest("request", &s.Request)...)
	for _, name := range slices.Sorted(maps.Keys(s.Variants)) {
		if variants[name] == "" {
			wrong("variants: %q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(variants)), ", "))
			continue
		}
		v := s.variant(name)
		errs = append(errs, s.checkRequest("variants: "+name, &v)...)
		if strings.HasPrefix(name, "slow") && v.Takes <= 0 {
			wrong("variants: %s: takes is needed, such as 3s", name)
		}
	}
	for _, t := range append([]Tenant{{Headers: s.Headers}}, s.Tenants...) {
		errs = append(errs, s.checkHeaders("headers", t.Headers)...)
	}
	if n := len(s.Tenants); n != 0 && n != 2 {
		wrong("tenants: there are %d, and two are needed", n)
	}

	ways := 0
	for _, way := range []string{s.Effects.URL, s.Effects.Command, s.Effects.Answers} {
		if way != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		wrong("effects: url, command and answers are three ways to count; one is enough")
	case ways == 0:
		s.Effects.Answers = "/id"
	}
	for name, pointer := range map[string]string{"pointer": s.Effects.Pointer, "answers": s.Effects.Answers} {
		if pointer != "" && pointer[0] != '/' && (name == "pointer" || !isToken(pointer)) {
			wrong("effects: %s: %q is not a JSON Pointer such as /id (RFC 6901)", name, pointer)
		}
	}
	if (s.Process.Crash == "") != (s.Process.Restart == "") {
		wrong("process: crash and restart need each other")
	}
	if (s.Process.Pause == "") != (s.Process.Resume == "") {
		wrong("process: pause and resume need each other")
	}
	if s.Concurrent < 0 || s.Concurrent > maxConcurrent {
		wrong("concurrent: %d is not between 1 and %d", s.Concurrent, maxConcurrent)
	}

	setDefault(&s.Lease, defaultLease)
	if s.Retention > 0 {
		setDefault(&s.Later, min(defaultLater, time.Duration(s.Retention)/2))
	}
	setDefault(&s.Later, defaultLater)
	if s.Retention > 0 && s.Later >= s.Retention {
		wrong("later: %v is not within the retention, %v: a repeat then is a new operation", time.Duration(s.Later), time.Duration(s.Retention))
	}
	setDefault(&s.Timeout, defaultTimeout)
	for name := range s.Variants {
		s.Timeout = max(s.Timeout, 2*s.Variants[name].Takes)
	}
	if s.Concurrent == 0 {
		s.Concurrent = defaultConcurrent
	}
	return errors.Join(errs...)
}

func setDefault(d *Duration, to time.Duration) {
	if *d == 0 {
		*d = Duration(to)
	}
}

// variant returns a variant of the request, with what it leaves out.
func (s *Scenario) variant(name string) Template {
	t := s.Variants[name]
	if t.Method == "" {
		t.Method = s.Request.Method
	}
	if t.Path == "" {
		t.Path = s.Request.Path
	}
	if t.Body == nil {
		t.Body = s.Request.Body
	}
	headers := maps.Clone(s.Request.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	maps.Copy(headers, t.Headers)
	t.Headers = headers
	return t
}

func (s *Scenario) checkRequest(where string, t *Template) (errs []error) {
	if !isToken(t.Method) {
		errs = append(errs, fmt.Errorf("%s: method: %q is not a method", where, t.Method))
	}
	if t.Path[0] != '/' {
		errs = append(errs, fmt.Errorf("%s: path: %q does not begin with a slash", where, t.Path))
	}
	for name, text := range map[string]string{"path": t.Path, "body": t.body()} {
		if err := checkTemplate(text, s.Fields); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", where, name, err))
		}
	}
	if strings.ContainsAny(t.Path, " \r\n\t") {
		errs = append(errs, fmt.Errorf("%s: path: %q has white space", where, t.Path))
	}
	return append(errs, s.checkHeaders(where+": headers", t.Headers)...)
}

func (s *Scenario) checkHeaders(where string, headers map[string]string) (errs []error) {
	for name, value := range headers {
		switch {
		case !isToken(name):
			errs = append(errs, fmt.Errorf("%s: %q is not a field name", where, name))
		case strings.ContainsAny(value, "\r\n\x00"):
			errs = append(errs, fmt.Errorf("%s: %s: the value has a line break", where, name))
		case strings.EqualFold(name, s.profile.KeyHeader):
			errs = append(errs, fmt.Errorf("%s: %s: the checks set it", where, name))
		default:
			if err := checkTemplate(value, s.Fields); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", where, name, err))
			}
		}
	}
	return errs
}

func (t *Template) body() string {
	if t.Body == nil {
		return ""
	}
	return *t.Body
}

// isToken reports whether a text is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}) < 0
}
