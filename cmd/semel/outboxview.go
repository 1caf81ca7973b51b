package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/outbox"
)

// messageView is a message as it is printed. The names in JSON are documented in docs/messages.md and stay.
type messageView struct {
	ID          string            `json:"id"`
	State       string            `json:"state"` // pending, dead, sent, absent
	Topic       string            `json:"topic"`
	Tenant      string            `json:"tenant"`
	Key         string            `json:"key"`
	Attempts    int               `json:"attempts"`
	Error       string            `json:"error"`
	Since       *time.Time        `json:"since"` // all times on the store's clock; null if not set
	Due         *time.Time        `json:"due"`
	Ended       *time.Time        `json:"ended"`
	Leased      bool              `json:"leased"`
	Holds       bool              `json:"holds"`
	Unreadable  string            `json:"unreadable,omitempty"` // why
	Headers     map[string]string `json:"headers"`
	PayloadSize int               `json:"payload_size"`             // in bytes
	Payload     *string           `json:"payload,omitempty"`        // if it was asked for and is text
	Base64      []byte            `json:"payload_base64,omitempty"` // if it was asked for and is not
	Decisions   []decisionView    `json:"decisions,omitempty"`
}

// A messageChange is what became of a message.
type messageChange struct {
	ID    string `json:"id"`
	Was   string `json:"was"`
	Is    string `json:"is"`
	Error string `json:"error,omitempty"` // why it was left alone
	state outbox.State
}

// checkView is what a check has found.
type checkView struct {
	Checked int64                `json:"checked"` // rows
	Without int64                `json:"without"` // of them without a message
	Missing []map[string]*string `json:"missing"` // these, up to --limit
}

func byColumn(columns []string, row stores.Row) map[string]*string {
	v := make(map[string]*string, len(columns))
	for i, name := range columns {
		v[name] = row[i]
	}
	return v
}

func viewOfMessage(e *outbox.Entry, body bool) messageView {
	v := messageView{
		ID: e.ID, State: e.State.String(), Topic: e.Topic, Tenant: e.Tenant, Key: e.Key, Attempts: e.Attempts, Error: e.Error,
		Since: moment(e.Since), Due: moment(e.Due), Ended: moment(e.Ended), Leased: e.Leased, Holds: e.Holds,
		Headers: map[string]string{}, PayloadSize: len(e.Payload),
	}
	if e.Err != nil {
		v.Unreadable = e.Err.Error()
		return v
	}
	for name, value := range e.Headers {
		if !body {
			value = "(hidden)"
		}
		v.Headers[name] = value
	}
	switch {
	case !body:
	case utf8.Valid(e.Payload):
		text := string(e.Payload)
		v.Payload = &text
	default:
		v.Base64 = e.Payload
	}
	return v
}

// moment returns a time, nil if it is not set.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// meaning says in a sentence what a message is.
func (v *messageView) meaning() string {
	switch {
	case v.State == "absent":
		return "absent: it is not in the outbox"
	case v.State == "pending" && v.Leased:
		return "pending: a relay is about to send it"
	case v.State == "pending" && v.Due != nil:
		return "pending: it waits, after a failure or for its delay"
	case v.State == "pending":
		return "pending: it is to be sent"
	case v.State == "dead" && v.Holds:
		return "dead: it was given up, and later messages of its key wait for it"
	case v.State == "dead":
		return "dead: it was given up"
	}
	return "sent: the broker has acknowledged it"
}

// short says the same in a word or some.
func (v *messageView) short() string {
	switch {
	case v.State == "pending" && v.Leased:
		return "leased"
	case v.State == "pending" && v.Due != nil:
		return "waiting"
	case v.State == "dead" && v.Holds:
		return "dead, holds"
	}
	return v.State
}

func printMessages(w io.Writer, views []messageView) error {
	const longest = 60 // characters of an error
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATE\tTOPIC\tTENANT\tKEY\tATTEMPTS\tSINCE\tERROR")
	for i := range views {
		v := &views[i]
		failure := []rune(plain(v.Error))
		if len(failure) > longest {
			failure = append(failure[:longest-1], '…')
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", v.ID, v.short(), plain(v.Topic), dash(v.Tenant), dash(v.Key), v.Attempts, at(v.Since), string(failure))
	}
	return t.Flush()
}

// dash returns a text for a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return plain(s)
}

func at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339)
}

func printMessage(w io.Writer, v *messageView) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, value)
		}
	}
	line("id", v.ID)
	line("state", v.meaning())
	if v.State != "absent" {
		line("topic", plain(v.Topic))
		line("tenant", plain(v.Tenant))
		line("key", plain(v.Key))
		line("attempts", strconv.Itoa(v.Attempts))
		line("error", plain(v.Error))
		line("since", at(v.Since))
		line("due", at(v.Due))
		line("ended", at(v.Ended))
		line("payload", v.payload())
		for _, name := range slices.Sorted(maps.Keys(v.Headers)) {
			line("  header", plain(name+": "+v.Headers[name]))
		}
	}
	for i, d := range v.Decisions {
		name := ""
		if i == 0 {
			name = "decisions"
		}
		fmt.Fprintf(t, "%s\t%s: %s by %s: %s (%s)\n", name, at(d.At), plain(d.Action), plain(d.Actor), plain(d.Reason), plain(d.Result))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if v.Payload != nil && printable(*v.Payload) {
		if _, err := fmt.Fprintf(w, "\n%s\n", strings.TrimSuffix(*v.Payload, "\n")); err != nil {
			return err
		}
	}
	return nil
}

func (v *messageView) payload() string {
	if v.Unreadable != "" {
		return "can't be read: " + plain(v.Unreadable)
	}
	value := fmt.Sprintf("%d bytes", v.PayloadSize)
	switch {
	case v.Base64 != nil || v.Payload != nil && !printable(*v.Payload):
		value += " (not plain text; --json prints it)"
	case v.Payload == nil && v.PayloadSize > 0:
		value += " (hidden; --body prints it)"
	}
	return value
}

func printMessageChanges(w io.Writer, changes []messageChange) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tWAS\tIS\tERROR")
	for _, c := range changes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", plain(c.ID), c.Was, c.Is, plain(c.Error))
	}
	return t.Flush()
}

// printMissing prints the rows of a check that have no message.
func printMissing(w io.Writer, v *checkView, columns []string, rows []stores.Row) error {
	if v.Without == 0 {
		_, err := fmt.Fprintf(w, "All %d rows have a message.\n", v.Checked)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, name := range columns {
		columns[i] = plain(strings.ToUpper(name))
	}
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = "NULL"; cell != nil {
				cells[i] = plain(*cell)
			}
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}
