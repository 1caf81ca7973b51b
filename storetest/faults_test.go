package storetest

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
)

// A fault is a store that breaks one promise, and the checks that must notice.
type fault struct {
	name  string
	build func(m *model)
	fails []string // topic/check
}

var faults = []fault{
	// Concurrency.
	{
		"Claim is read, then written",
		func(m *model) { m.torn = of(claiming) },
		[]string{
			"concurrency/one of many first claims wins",
			"concurrency/one of many takeovers wins",
			"concurrency/one of many reruns wins",
			"concurrency/one of many claims after retention wins",
			"concurrency/many at work on few keys lose nothing",
		},
	},
	{
		"Extend is read, then written",
		func(m *model) { m.torn = of(extending) },
		[]string{"concurrency/a late heartbeat reopens nothing"},
	},
	{
		"Settle is read, then written",
		func(m *model) { m.torn = of(settling) },
		[]string{"concurrency/one outcome is written"},
	},
	{
		"each handle has its own records",
		func(m *model) { m.open = func(m *model) driver.Store { return newModel() } },
		[]string{
			"concurrency/one of many first claims wins",
			"claim/a running key refuses others",
			"payload/every id is its own",
		},
	},

	// Contexts.
	{
		"verbs ignore their context",
		func(m *model) { m.deaf = of(claiming, extending, settling, loading, sweeping) },
		[]string{"context/an ended one is an error and changes nothing"},
	},
	{
		"Claim works before it looks at its context",
		func(m *model) { m.open = func(m *model) driver.Store { return tardy{m} } },
		[]string{"context/an ended one is an error and changes nothing"},
	},
	{
		"operators' verbs ignore their context",
		func(m *model) { m.deaf = of(seizing, forgetting) },
		[]string{"context/an ended one stops operators too"},
	},
	{
		"listing ignores its context",
		func(m *model) { m.deaf = of(listing) },
		[]string{"context/an ended one ends a listing"},
	},
	{
		"Claim acknowledges before it writes",
		func(m *model) { m.hasty = of(claiming) },
		[]string{"context/one that ends meanwhile leaves all or nothing"},
	},
	{
		"Settle acknowledges before it writes",
		func(m *model) { m.hasty = of(settling) },
		[]string{"context/one that ends meanwhile leaves all or nothing"},
	},

	// Payloads.
	{
		"bodies are cut at 64 KiB",
		answers(func(a *driver.Response) *driver.Response {
			a.Body = a.Body[:min(len(a.Body), 1<<16)]
			return a
		}),
		[]string{"payload/bodies are exact"},
	},
	{
		"bodies end at a NUL",
		answers(func(a *driver.Response) *driver.Response {
			a.Body, _, _ = bytes.Cut(a.Body, []byte{0})
			return a
		}),
		[]string{"payload/bodies are exact"},
	},
	{
		"an empty answer is none",
		answers(func(a *driver.Response) *driver.Response {
			if len(a.Body)+len(a.Header)+len(a.Trailer) == 0 {
				return nil
			}
			return a
		}),
		[]string{"payload/no answer is not an empty one"},
	},
	{
		"no answer is an empty one",
		after(settling, when(
			func(x *call) bool { return x.rec.State == driver.Done && x.rec.Response == nil },
			func(x *call) { x.rec.Response = &driver.Response{} },
		)),
		[]string{"payload/no answer is not an empty one", "settle/done without an answer is done", "claim/a done key answers"},
	},
	{
		"a status of 0 is 200",
		answers(func(a *driver.Response) *driver.Response {
			if a.Status == 0 {
				a.Status = 200
			}
			return a
		}),
		[]string{"payload/status and codec are exact"},
	},
	{
		"the codec is lost",
		answers(func(a *driver.Response) *driver.Response {
			a.Codec = ""
			return a
		}),
		[]string{"payload/status and codec are exact"},
	},
	{
		"header values are joined",
		answers(func(a *driver.Response) *driver.Response {
			h := http.Header{}
			for name, values := range a.Header {
				h[name] = []string{strings.Join(values, ", ")}
			}
			a.Header = h
			return a
		}),
		[]string{"payload/headers are exact"},
	},
	{
		"header names are made canonical",
		answers(func(a *driver.Response) *driver.Response {
			h := http.Header{}
			for name, values := range a.Header {
				h[http.CanonicalHeaderKey(name)] = values
			}
			a.Header = h
			return a
		}),
		[]string{"payload/headers are exact"},
	},
	{
		"trailers are dropped",
		answers(func(a *driver.Response) *driver.Response {
			a.Trailer = nil
			return a
		}),
		[]string{"payload/trailers are exact", "settle/done keeps the answer"},
	},
	{
		"texts are made valid UTF-8",
		func(m *model) {
			m.stored = func(r driver.Record) driver.Record {
				r.Correlation = strings.ToValidUTF8(r.Correlation, "\ufffd")
				return r
			}
		},
		[]string{"payload/texts are inert"},
	},
	{
		"texts end at a NUL",
		func(m *model) {
			m.stored = func(r driver.Record) driver.Record {
				r.Error, _, _ = strings.Cut(r.Error, "\x00")
				return r
			}
		},
		[]string{"payload/texts are inert"},
	},
	{
		"the sealed request goes with the first run",
		after(claiming, when(
			func(x *call) bool { return x.old.State != driver.Absent },
			func(x *call) { x.rec.Sealed = x.claim.Sealed },
		)),
		[]string{"payload/a sealed request is exact, and stays until the operation is done", "claim/a free key runs again"},
	},
	{
		"a done record keeps its sealed request",
		after(settling, func(x *call) { x.rec.Sealed = x.old.Sealed }),
		[]string{
			"payload/a sealed request is exact, and stays until the operation is done",
			"list/it selects by sealed request",
		},
	},
	{
		"a begun record that is released keeps its sealed request",
		after(settling, when(
			func(x *call) bool { return x.outcome.State != driver.Done },
			func(x *call) { x.rec.Sealed = x.old.Sealed },
		)),
		[]string{"payload/a sealed request is exact, and stays until the operation is done"},
	},
	{
		"the sealed request is dropped by a settle",
		after(settling, func(x *call) { x.rec.Sealed = nil }),
		[]string{"payload/a sealed request is exact, and stays until the operation is done"},
	},
	{
		"ids are cut to 47 bytes",
		func(m *model) {
			m.filed = func(id driver.ID) driver.ID {
				id[47] = 0
				return id
			}
		},
		[]string{"payload/every id is its own"},
	},
	{
		"ids are compared without case",
		func(m *model) { m.filed = func(id driver.ID) driver.ID { return driver.ID(bytes.Map(lower, id[:])) } },
		[]string{"payload/every id is its own"},
	},

	// Clocks and restarts.
	{
		"a refused claim does not tell the time",
		func(m *model) {
			m.told = func(v verb, owned bool, now *driver.Time) {
				if v == claiming && !owned {
					*now = 0
				}
			}
		},
		[]string{"clock/each record tells the time"},
	},
	{
		"Seize does not tell the time",
		func(m *model) {
			m.told = func(v verb, _ bool, now *driver.Time) {
				if v == seizing {
					*now = 0
				}
			}
		},
		[]string{"clock/seizing tells the time"},
	},
	{
		"each handle has a clock of its own",
		func(m *model) {
			behind := time.Duration(0)
			m.open = func(m *model) driver.Store {
				behind += time.Hour
				return skewed{m, behind}
			}
		},
		[]string{"clock/it is the same on every handle, and moves"},
	},
	{
		"a restart loses what runs",
		func(m *model) { m.lost = func(r driver.Record) bool { return r.State == driver.Running } },
		[]string{"restart/what was acknowledged is there after a restart"},
	},
	{
		"a restart loses one done record",
		func(m *model) { m.lost = func(r driver.Record) bool { return r.State == driver.Done } },
		[]string{"restart/what was acknowledged is there after a restart"},
	},
}

func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

// A creator writes an empty record where it finds none.
type creator struct{ *model }

func (s creator) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, err := s.model.Load(ctx, id)
	if err == nil && rec.State == driver.Absent {
		rec.State = driver.Free
	}
	return rec, err
}

// A cached handle believes what it saw last.
type cached struct {
	*model
	seen map[driver.ID]driver.Record
}

func (s *cached) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	s.mu.Lock()
	rec, ok := s.seen[id]
	now := s.clock
	s.mu.Unlock()
	if ok {
		rec.Now = now
		return rec, nil
	}
	rec, err := s.model.Load(ctx, id)
	if err == nil && rec.State != driver.Absent {
		s.mu.Lock()
		s.seen[id] = rec
		s.mu.Unlock()
	}
	return rec, err
}

// A tardy handle looks at the context of a claim when the work is done.
type tardy struct{ *model }

func (s tardy) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	rec, owned, err := s.model.Claim(context.WithoutCancel(ctx), id, c)
	if ctx.Err() != nil {
		return driver.Record{}, false, ctx.Err()
	}
	return rec, owned, err
}

// A skewed handle tells, and claims at, a time of its own.
type skewed struct {
	*model
	ahead time.Duration
}

func (s skewed) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, err := s.model.Load(ctx, id)
	rec.Now = rec.Now.Add(s.ahead)
	return rec, err
}

func (s skewed) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	return s.do(ctx, claiming, id, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		return s.claim(r, now.Add(s.ahead), c)
	})
}
