package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

var noon = driver.TimeOf(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))

func before(d time.Duration) driver.Time { return noon.Add(-d) }

// Operations as an operator may meet them, at noon.
var (
	lostID, paidID = driver.ID{1}, driver.ID{0xff}

	lostRecord = driver.Record{
		State: driver.Running, Fence: 1764331200000, Attempt: 1, Operation: "POST /payments", Correlation: "c-17",
		Created: before(3*time.Hour + 12*time.Minute), Started: before(3*time.Hour + 12*time.Minute), LeaseEnd: before(3 * time.Hour),
		Retention: 24 * time.Hour, Now: noon,
	}
	paidRecord = driver.Record{
		State: driver.Done, OnLost: semel.Rerun, Fence: 1764331200001, Attempt: 2, Operation: "POST /payments",
		Created: before(49 * time.Hour), Started: before(62 * time.Second), LeaseEnd: before(32 * time.Second), Settled: before(61 * time.Second),
		Retention: 24 * time.Hour, Now: noon,
		Response: &driver.Response{
			Status: 201, Body: []byte("{}\n"),
			Header: http.Header{"Location": {"/payments/1"}, "Content-Type": {"application/json"}, "Vary": {"Accept", "Origin"}},
		},
	}
	decisions = []driver.AuditEntry{
		{At: before(time.Second), Actor: "ann@desk", Action: "release", Reason: "the bank knows of no charge", Result: "refused: a run is at work"},
		{At: before(2 * time.Second), Actor: "ann@desk", Action: "release", Reason: "the bank knows of no charge", Result: "asked"},
	}
)

func TestAListAsATable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := printTable(&out, []operationView{viewOf(lostID, &lostRecord, false), viewOf(paidID, &paidRecord, false)})
	want := `ID                                                                READS    ATTEMPTS  STARTED    OPERATION
AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA  unknown  1         3h12m ago  POST /payments
_wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA  done     2         1m2s ago   POST /payments
`
	if err != nil || out.String() != want {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, &out, want)
	}
}

func TestAnOperationForPeople(t *testing.T) {
	t.Parallel()
	lost := viewOf(lostID, &lostRecord, false)
	lost.Decisions = decisionsOf(decisions)
	for _, c := range []struct {
		view operationView
		want string
	}{
		{lost, `id           AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
reads        unknown: it may have taken effect; repeats get 409 outcome-unknown until somebody decides
operation    POST /payments
attempts     1
fence        1764331200000
on lost      hold
created      2026-11-28T08:48:00Z (3h12m ago)
started      2026-11-28T08:48:00Z (3h12m ago)
lease end    2026-11-28T09:00:00Z (3h0m ago)
expires      never
correlation  c-17
decisions    2026-11-28T11:59:59Z (1s ago): release by ann@desk: the bank knows of no charge (refused: a run is at work)
             2026-11-28T11:59:58Z (2s ago): release by ann@desk: the bank knows of no charge (asked)
`},
		{viewOf(paidID, &paidRecord, true), `id         _wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
reads      done: repeats get its answer
operation  POST /payments
attempts   2
fence      1764331200001
on lost    rerun
created    2026-11-26T11:00:00Z (2d1h ago)
started    2026-11-28T11:58:58Z (1m2s ago)
lease end  2026-11-28T11:59:28Z (32s ago)
settled    2026-11-28T11:58:59Z (1m1s ago)
expires    2026-11-29T11:58:59Z (in 23h58m)
answer     status 201, body of 3 bytes
  header   Content-Type: application/json
  header   Location: /payments/1
  header   Vary: Accept
  header   Vary: Origin

{}
`},
	} {
		var out bytes.Buffer
		if err := printOperation(&out, c.view); err != nil || out.String() != c.want {
			t.Errorf("%v, printed\n%s\nwant\n%s", err, &out, c.want)
		}
	}
}

func TestADecisionForPeople(t *testing.T) {
	t.Parallel()
	paid := viewOf(lostID, &paidRecord, false)
	for _, c := range []struct {
		after *operationView
		want  string
	}{
		{&paid, "done: repeats get its answer"},
		{nil, "absent: the key is new"},
	} {
		var out bytes.Buffer
		err := printChange(&out, changeView{Action: "complete", Before: viewOf(lostID, &lostRecord, false), After: c.after})
		want := `id         AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
operation  POST /payments
was        unknown: it may have taken effect; repeats get 409 outcome-unknown until somebody decides
is         ` + c.want + "\n"
		if err != nil || out.String() != want {
			t.Errorf("%v, printed\n%s\nwant\n%s", err, &out, want)
		}
	}
}

// The names and forms in JSON are what scripts hold on to.
func TestAnOperationForScripts(t *testing.T) {
	t.Parallel()
	v := viewOf(paidID, &paidRecord, true)
	v.Decisions = decisionsOf(decisions[:1])
	var out bytes.Buffer
	want := `{
  "id": "_wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
  "reads": "done",
  "state": "done",
  "operation": "POST /payments",
  "attempts": 2,
  "fence": 1764331200001,
  "on_lost": "rerun",
  "begun": false,
  "maybe": false,
  "seized": false,
  "steps": false,
  "owed": false,
  "sealed": false,
  "correlation": "",
  "error": "",
  "created": "2026-11-26T11:00:00Z",
  "started": "2026-11-28T11:58:58Z",
  "lease_end": "2026-11-28T11:59:28Z",
  "settled": "2026-11-28T11:58:59Z",
  "expires": "2026-11-29T11:58:59Z",
  "now": "2026-11-28T12:00:00Z",
  "retention_seconds": 86400,
  "answer": {
    "status": 201,
    "header": {
      "Content-Type": [
        "application/json"
      ],
      "Location": [
        "/payments/1"
      ],
      "Vary": [
        "Accept",
        "Origin"
      ]
    },
    "body_size": 3,
    "codec": "",
    "body": "{}\n"
  },
  "decisions": [
    {
      "at": "2026-11-28T11:59:59Z",
      "actor": "ann@desk",
      "action": "release",
      "reason": "the bank knows of no charge",
      "result": "refused: a run is at work"
    }
  ]
}
`
	if err := printJSON(&out, v); err != nil || out.String() != want {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, &out, want)
	}
}

func TestWhatAnOperationReadsAs(t *testing.T) {
	t.Parallel()
	r := func(state driver.State, change func(*driver.Record)) driver.Record {
		rec := driver.Record{State: state, LeaseEnd: before(time.Second), Settled: before(time.Minute), Retention: time.Hour, Now: noon}
		change(&rec)
		return rec
	}
	for _, c := range []struct {
		rec   driver.Record
		reads string
		marks string
	}{
		{r(driver.Absent, func(*driver.Record) {}), "absent: the key is new", ""},
		{r(driver.Running, func(r *driver.Record) { r.LeaseEnd = noon + 1 }), "running: a run owns it", ""},
		{r(driver.Running, func(*driver.Record) {}), "unknown: it may have", ""},
		{r(driver.Running, func(r *driver.Record) { r.OnLost = semel.Rerun }), "free: its run was lost", ""},
		{r(driver.Running, func(r *driver.Record) { r.Begun = true }), "done, without an answer", "begun: a part"},
		{r(driver.Free, func(r *driver.Record) { r.Maybe, r.OnLost = true, semel.Rerun }), "free: it was released", "maybe: an earlier run"},
		{r(driver.Free, func(r *driver.Record) { r.OnLost, r.Steps = semel.Rerun, true }), "free: it was released", "steps: results of some"},
		{
			r(driver.Free, func(r *driver.Record) { r.OnLost, r.Owed, r.Sealed = semel.Rerun, true, []byte{1} }),
			"free: it was released", "owed: a completer finishes it without its client; sealed: its request is stored",
		},
		{r(driver.Unknown, func(r *driver.Record) { r.Seized = true }), "unknown: it may have", "seized: somebody"},
		{r(driver.Done, func(*driver.Record) {}), "done, without an answer", ""},
		{r(driver.Done, func(r *driver.Record) { r.Settled = before(time.Hour) }), "absent: its retention is over", ""},
	} {
		v := viewOf(lostID, &c.rec, false)
		if got := v.meaning(); !strings.HasPrefix(got, c.reads) {
			t.Errorf("%+v reads %q, want %q", c.rec, got, c.reads)
		}
		if got := v.marks(); !strings.HasPrefix(got, c.marks) || c.marks == "" && got != "" {
			t.Errorf("%+v is marked %q, want %q", c.rec, got, c.marks)
		}
	}
}

// Texts that clients have chosen can't do anything to an operator's terminal.
func TestClientsTextsAreHarmlessOnATerminal(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\nid  forged\u202e"
	rec := paidRecord
	rec.Operation, rec.Correlation, rec.Error = evil, evil, evil
	rec.Response = &driver.Response{Status: 200, Body: []byte(evil), Codec: evil, Header: http.Header{evil: {evil}}}
	v := viewOf(paidID, &rec, true)
	v.Decisions = decisionsOf([]driver.AuditEntry{{Actor: evil, Action: evil, Reason: evil, Result: evil}})
	var out bytes.Buffer
	if err := printOperation(&out, v); err != nil {
		t.Fatal(err)
	}
	if err := printTable(&out, []operationView{v}); err != nil {
		t.Fatal(err)
	}
	if err := printChange(&out, changeView{Before: v, After: &v}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\u202e") || strings.Contains(out.String(), "\nid  forged") {
		t.Errorf("printed %q", out.String())
	}
}

func TestStoredBodiesAreShownAsTheyWereSent(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{CompressAbove: 1})
	s.runs = 1
	for name, body := range map[string]string{"text": strings.Repeat("text ", 100), "binary": strings.Repeat("\xff\x00", 100)} {
		h := s.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) }))
		s.handler = h
		s.pay("acme", name)
	}
	contains(t, s.must("show", s.id("text"), "--body"), "\n\n"+strings.Repeat("text ", 100)+"\n")
	contains(t, s.must("show", s.id("text")), "stored as gzip (hidden")
	contains(t, s.must("show", s.id("binary"), "--body"), "not plain text; --json prints it")
	contains(t, s.must("show", s.id("binary"), "--body", "--json"), `"body_base64": "/wD/AP8A`, `"codec": ""`)
}
