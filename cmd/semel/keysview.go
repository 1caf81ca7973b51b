package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// operationView is an operation as it is printed. The names in JSON are documented in docs/operations.md and stay.
type operationView struct {
	ID          string         `json:"id"`
	Reads       string         `json:"reads"` // running, done, free, unknown, expired, absent
	State       string         `json:"state"` // as it is stored
	Operation   string         `json:"operation"`
	Attempts    uint32         `json:"attempts"`
	Fence       uint64         `json:"fence"`
	OnLost      string         `json:"on_lost"`
	Begun       bool           `json:"begun"`
	Maybe       bool           `json:"maybe"`
	Seized      bool           `json:"seized"`
	Steps       bool           `json:"steps"`  // results of steps are saved
	Owed        bool           `json:"owed"`   // to be finished without its client
	Sealed      bool           `json:"sealed"` // its request is stored
	Correlation string         `json:"correlation"`
	Error       string         `json:"error"`
	Created     *time.Time     `json:"created"` // all times on the store's clock; null if not set
	Started     *time.Time     `json:"started"`
	LeaseEnd    *time.Time     `json:"lease_end"`
	Settled     *time.Time     `json:"settled"`
	Expires     *time.Time     `json:"expires"`
	Now         *time.Time     `json:"now"` // when it was read
	Retention   *int64         `json:"retention_seconds"`
	Answer      *answerView    `json:"answer"`
	Decisions   []decisionView `json:"decisions,omitempty"`
}

type answerView struct {
	Status   int         `json:"status"`
	Header   http.Header `json:"header"`
	Trailer  http.Header `json:"trailer,omitempty"`
	BodySize int         `json:"body_size"` // in bytes, as it is stored
	Codec    string      `json:"codec"`
	Body     *string     `json:"body,omitempty"`        // if it was asked for and is text
	Base64   []byte      `json:"body_base64,omitempty"` // if it was asked for and is not
}

type decisionView struct {
	At     *time.Time `json:"at"`
	Actor  string     `json:"actor"`
	Action string     `json:"action"`
	Reason string     `json:"reason"`
	Result string     `json:"result"`
}

type changeView struct {
	Action string         `json:"action"`
	Before operationView  `json:"before"`
	After  *operationView `json:"after"` // null if it was forgotten
}

func viewOf(id driver.ID, rec *driver.Record, body bool) operationView {
	v := operationView{
		ID: id.String(), Reads: rec.Reads(rec.OnLost).String(), State: rec.State.String(), Operation: rec.Operation,
		Attempts: rec.Attempt, Fence: rec.Fence, OnLost: rec.OnLost.String(), Begun: rec.Begun, Maybe: rec.Maybe, Seized: rec.Seized,
		Steps: rec.Steps, Owed: rec.Owed, Sealed: len(rec.Sealed) > 0,
		Correlation: rec.Correlation, Error: rec.Error, Created: instant(rec.Created), Started: instant(rec.Started),
		LeaseEnd: instant(rec.LeaseEnd), Settled: instant(rec.Settled), Now: instant(rec.Now), Answer: answerOf(rec.Response, body),
	}
	if rec.State != driver.Absent {
		v.Expires = instant(rec.Expires())
		if rec.Retention < semel.Forever/2 {
			seconds := int64(rec.Retention / time.Second)
			v.Retention = &seconds
		}
	}
	return v
}

// instant returns a time of the store, nil if it is not set or never comes.
func instant(t driver.Time) *time.Time {
	at := t.Time()
	if t == 0 || at.Year() > 9999 { // RFC 3339 has four digits
		return nil
	}
	return &at
}

func answerOf(r *driver.Response, body bool) *answerView {
	if r == nil {
		return nil
	}
	v := &answerView{Status: r.Status, Trailer: r.Trailer, BodySize: len(r.Body), Codec: r.Codec}
	v.Header = http.Header{}
	for name, values := range r.Header {
		if !strings.HasPrefix(name, ":") { // the guard's own, which is never sent
			v.Header[name] = values
		}
	}
	if !body {
		v.Header, v.Trailer = hidden(v.Header), hidden(v.Trailer)
		return v
	}
	plain := r.Body
	if r.Codec == "gzip" {
		if unpacked, err := gunzip(r.Body); err == nil {
			plain, v.Codec = unpacked, ""
		}
	}
	if utf8.Valid(plain) {
		text := string(plain)
		v.Body = &text
	} else {
		v.Base64 = plain
	}
	return v
}

// plainHeaders are those of an answer that hold nothing of anybody's.
var plainHeaders = map[string]bool{
	"Cache-Control": true, "Content-Encoding": true, "Content-Language": true, "Content-Type": true, "Date": true, "Vary": true,
}

// hidden returns headers without their values, save for those of plainHeaders.
func hidden(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	names := make(http.Header, len(h))
	for name, values := range h {
		if !plainHeaders[http.CanonicalHeaderKey(name)] {
			values = slices.Repeat([]string{"(hidden)"}, len(values))
		}
		names[name] = values
	}
	return names
}

func gunzip(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func decisionsOf(trail []driver.AuditEntry) (list []decisionView) {
	for _, e := range trail {
		list = append(list, decisionView{At: instant(e.At), Actor: e.Actor, Action: e.Action, Reason: e.Reason, Result: e.Result})
	}
	return list
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// meaning says in words what a repeat of the operation gets.
func (v *operationView) meaning() string {
	switch {
	case v.Reads == "running":
		return "running: a run owns it; repeats wait or get 409"
	case v.Reads == "done" && v.Answer != nil:
		return "done: repeats get its answer"
	case v.Reads == "done":
		return "done, without an answer: repeats get 409 replay-unavailable"
	case v.Reads == "free" && v.State == "running":
		return "free: its run was lost; the next attempt runs it"
	case v.Reads == "free":
		return "free: it was released; the next attempt runs it"
	case v.Reads == "unknown":
		return "unknown: it may have taken effect; repeats get 409 outcome-unknown until somebody decides"
	case v.State == "absent":
		return "absent: the key is new"
	}
	return "absent: its retention is over; the key is new"
}

func printTable(w io.Writer, views []operationView) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tREADS\tATTEMPTS\tSTARTED\tOPERATION")
	for _, v := range views {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", v.ID, v.Reads, v.Attempts, v.ago(v.Started), named(v.Operation))
	}
	return t.Flush()
}

func printOperation(w io.Writer, v operationView) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, value)
		}
	}
	line("id", v.ID)
	line("reads", v.meaning())
	if v.State != "absent" {
		line("operation", named(v.Operation))
		line("attempts", strconv.FormatUint(uint64(v.Attempts), 10))
		line("fence", strconv.FormatUint(v.Fence, 10))
		line("on lost", v.OnLost)
		line("marks", v.marks())
		line("created", v.when(v.Created))
		line("started", v.when(v.Started))
		line("lease end", v.when(v.LeaseEnd))
		line("settled", v.when(v.Settled))
		if v.Expires != nil {
			line("expires", v.when(v.Expires))
		} else {
			line("expires", "never")
		}
		line("correlation", named(v.Correlation))
		line("error", plain(v.Error))
	}
	if v.Answer != nil {
		v.Answer.print(line)
	}
	for i, d := range v.Decisions {
		name := ""
		if i == 0 {
			name = "decisions"
		}
		fmt.Fprintf(t, "%s\t%s: %s by %s: %s (%s)\n", name, v.when(d.At), plain(d.Action), plain(d.Actor), plain(d.Reason), plain(d.Result))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if a := v.Answer; a != nil && a.Body != nil && printable(*a.Body) {
		if _, err := fmt.Fprintf(w, "\n%s\n", strings.TrimSuffix(*a.Body, "\n")); err != nil {
			return err
		}
	}
	return nil
}

func (a *answerView) print(line func(name, value string)) {
	value := fmt.Sprintf("status %d, body of %d bytes", a.Status, a.BodySize)
	if a.Status == 0 {
		value = fmt.Sprintf("result of a call, %d bytes", a.BodySize)
	}
	if a.Codec != "" {
		value += ", stored as " + plain(a.Codec)
	}
	switch {
	case a.Base64 != nil || a.Body != nil && !printable(*a.Body):
		value += " (not plain text; --json prints it)"
	case a.Body == nil && a.BodySize > 0:
		value += " (hidden; --body prints it)"
	}
	line("answer", value)
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		for _, v := range a.Header[name] {
			line("  header", plain(name+": "+v))
		}
	}
}

// marks lists what else is known of the operation.
func (v *operationView) marks() string {
	var list []string
	if v.Begun {
		list = append(list, "begun: a part of its answer may have left")
	}
	if v.Maybe {
		list = append(list, "maybe: an earlier run may have had its effect")
	}
	if v.Seized {
		list = append(list, "seized: somebody is deciding, or was interrupted")
	}
	if v.Steps {
		list = append(list, "steps: results of some are saved")
	}
	if v.Owed {
		list = append(list, "owed: a completer finishes it without its client")
	}
	if v.Sealed {
		list = append(list, "sealed: its request is stored")
	}
	return strings.Join(list, "; ")
}

// printChange prints what a decision has made of an operation.
func printChange(w io.Writer, v changeView) error {
	is := "absent: the key is new"
	if v.After != nil {
		is = v.After.meaning()
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "id\t%s\noperation\t%s\nwas\t%s\nis\t%s\n", v.Before.ID, named(v.Before.Operation), v.Before.meaning(), is)
	return t.Flush()
}

// when prints an instant and how long ago it was when the operation was read.
func (v *operationView) when(t *time.Time) string {
	if t == nil {
		return ""
	}
	text := t.Format(time.RFC3339)
	if ago := v.ago(t); ago != "" {
		text += " (" + ago + ")"
	}
	return text
}

func (v *operationView) ago(t *time.Time) string {
	if t == nil || v.Now == nil {
		return ""
	}
	if d := v.Now.Sub(*t); d < 0 {
		return "in " + length(-d)
	} else {
		return length(d) + " ago"
	}
}

// length prints a duration in its one or two largest units.
func length(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// plain returns a text that a client may have chosen as it is, or quoted if it could do something to a terminal.
func plain(s string) string {
	if strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	return s
}

// named is plain for a name that may be sealed.
func named(s string) string {
	if strings.HasPrefix(s, driver.SealedName) {
		return "(sealed: its encryption key is not in --encryption-keys-file)"
	}
	return plain(s)
}

// printable reports whether a text of several lines does nothing to a terminal.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c != '\n' && c != '\r' && c != '\t' && !unicode.IsPrint(c) })
}
