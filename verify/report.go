package verify

import "time"

// Severity says what a finding means for whoever relies on the API.
type Severity string

const (
	// Safety is violated: an operation takes effect twice or not at all, or an answer is not true.
	Safety Severity = "safety"
	// Protocol is violated: clients that follow the profile are misled or stuck, but no effect or answer is wrong.
	Protocol Severity = "protocol"
	// Advice is for what works, and could serve clients better.
	Advice Severity = "advice"
)

// Status is how a check ended.
type Status string

// How a check ends.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped" // the scenario does not say what it needs
)

// A Report is what came of a run.
type Report struct {
	Target  string        `json:"target"`
	Profile string        `json:"profile"`
	Seed    uint64        `json:"seed"`
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took_ns"`
	Checks  []Result      `json:"checks"`
	Loads   []Load        `json:"loads,omitempty"` // at most one without faults, and one with them
	Gates   []Gate        `json:"gates,omitempty"`
}

// Violated reports whether a check found a violation of safety or of the protocol, or a gate is closed.
func (r *Report) Violated() bool {
	for i := range r.Checks {
		if s := r.Checks[i].worst(); s == Safety || s == Protocol {
			return true
		}
	}
	for _, g := range r.Gates {
		if !g.Open {
			return true
		}
	}
	return false
}

// A Result is what came of one check.
type Result struct {
	Name     string        `json:"name"`  // such as "mismatch-body"
	Title    string        `json:"title"` // what is right, in a sentence
	Rules    []string      `json:"rules"` // such as "R-16"
	Status   Status        `json:"status"`
	Why      string        `json:"why,omitempty"` // it was skipped
	Findings []Finding     `json:"findings,omitempty"`
	Took     time.Duration `json:"took_ns"`
}

// worst returns the severity of the worst finding, or "".
func (r *Result) worst() (worst Severity) {
	for _, f := range r.Findings {
		if worst == "" || f.Severity == Safety || f.Severity == Protocol && worst == Advice {
			worst = f.Severity
		}
	}
	return worst
}

// A Finding is one thing that is not as it should be.
type Finding struct {
	Severity  Severity   `json:"severity"`
	Rule      string     `json:"rule"`
	What      string     `json:"what"`                // such as "2 effects of one key"
	Right     string     `json:"right"`               // such as "one effect, and the first answer again"
	Exchanges []Exchange `json:"exchanges,omitempty"` // of its operation, in the order in which they were sent
}

// An Exchange is a request and what came of it, for people to read. Secrets of the scenario's headers are not in it.
type Exchange struct {
	At   time.Duration `json:"at_ns"` // since the check began
	Sent string        `json:"sent"`  // such as "POST /payments, key a, 82 bytes"
	Came string        `json:"came"`  // such as "201 in 12 ms, 48 bytes {…}"
}

// A Gate is a bound that the caller has set on what loads show.
type Gate struct {
	Name  string  `json:"name"` // the flag, such as "--max-p99"
	Bound float64 `json:"bound"`
	Got   float64 `json:"got"`
	Unit  string  `json:"unit,omitempty"` // such as "ms"
	Open  bool    `json:"open"`           // the bound holds
}

// A Load is what came of many operations at once.
type Load struct {
	Faults   float64       `json:"faults"` // which part of the requests a fault was meant for, 0 to 1
	Rate     float64       `json:"rate"`   // of operations and repeats a second
	Duration time.Duration `json:"duration_ns"`

	Operations int `json:"operations"` // keys
	Requests   int `json:"requests"`   // logical ones: first ones and repeats
	Attempts   int `json:"attempts"`   // with retries
	Succeeded  int `json:"succeeded"`  // requests
	Replayed   int `json:"replayed"`   // requests that were repeats, and got the first answer
	Repeats    int `json:"repeats"`    // requests that were repeats
	Conflicts  int `json:"conflicts"`  // attempts that were told that the operation is in progress
	Effects    int `json:"effects"`    // -1 if they can't be counted
	Duplicates int `json:"duplicates"` // effects beyond the first of their operation
	Broken     int `json:"broken"`     // operations of which answers and effects contradict each other, or that are stuck

	DuplicateRate float64 `json:"duplicate_side_effect_rate"` // duplicates / operations
	ReplayRate    float64 `json:"idempotent_replay_rate"`     // replayed / repeats
	SuccessRate   float64 `json:"success_rate"`               // succeeded / requests
	ConflictRate  float64 `json:"conflict_rate"`              // conflicts / attempts

	P50 time.Duration `json:"p50_ns"` // of attempts that were answered
	P95 time.Duration `json:"p95_ns"`
	P99 time.Duration `json:"p99_ns"`

	Samples  []Sample    `json:"samples,omitempty"` // attempts; some of them, evenly, if there are many
	Kinds    []Count     `json:"answers"`           // how many attempts ended how
	Injected []Count     `json:"injected"`          // how many attempts met which fault
	Failed   []FailedKey `json:"failed,omitempty"`  // the first of them
}

// A Sample is one attempt.
type Sample struct {
	At    time.Duration `json:"at_ns"` // since the load began
	Took  time.Duration `json:"took_ns"`
	Kind  string        `json:"kind"`            // as in Kinds
	Fault string        `json:"fault,omitempty"` // as in Injected
}

// A Count is how often something was seen.
type Count struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

// A FailedKey is an operation that broke a promise, or did not succeed in time.
type FailedKey struct {
	Key    string   `json:"key"`
	What   string   `json:"what"`
	Events []Moment `json:"events"`
}

// A Moment is what happened to a key, and when.
type Moment struct {
	At   time.Duration `json:"at_ns"` // since the load began
	What string        `json:"what"`
}
