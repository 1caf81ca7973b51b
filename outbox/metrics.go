package outbox

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// WriteMetrics writes what a relay has counted and what its store holds in Prometheus' text format, version 0.0.4. Their
// names begin with idempotency_outbox_. The only label is topic.
func WriteMetrics(w io.Writer, c Counts, s Stats) error {
	var b bytes.Buffer
	family := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP idempotency_outbox_%[1]s %[3]s\n# TYPE idempotency_outbox_%[1]s %[2]s\n", name, kind, help)
	}
	for _, m := range []struct {
		name, help string
		value      uint64
	}{
		{"sent_total", "Messages that this relay has sent.", c.Sent},
		{"failed_total", "Attempts of this relay that failed and count.", c.Failed},
		{"dead_total", "Messages that this relay has given up.", c.Dead},
		{"put_back_total", "Messages that this relay has leased and put back.", c.PutBack},
		{"pauses_total", "Pauses of a tenant's topic in which everything has failed.", c.Pauses},
		{"store_error_total", "Calls of the store that have failed.", c.StoreErrors},
	} {
		family(m.name, "counter", m.help)
		fmt.Fprintf(&b, "idempotency_outbox_%s %d\n", m.name, m.value)
	}
	topics := slices.Sorted(maps.Keys(s.Topics))
	for _, m := range []struct {
		name, help string
		value      func(TopicStats) float64
	}{
		{"pending", "Messages to be sent.", func(t TopicStats) float64 { return float64(t.Pending) }},
		{"dead", "Dead letters.", func(t TopicStats) float64 { return float64(t.Dead) }},
		{"lag_seconds", "Since when the message could have been sent that waits longest; 0 if none waits.", func(t TopicStats) float64 { return t.Lag.Seconds() }},
	} {
		family(m.name, "gauge", m.help)
		for _, topic := range topics {
			fmt.Fprintf(&b, "idempotency_outbox_%s{topic=\"%s\"} %s\n", m.name, labelValue.Replace(topic), strconv.FormatFloat(m.value(s.Topics[topic]), 'g', -1, 64))
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("outbox: write metrics: %w", err)
	}
	return nil
}

var labelValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
