package semel

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
)

// dates writes HTTP dates. It remembers the last one: the answers of one second expire in the same second.
type dates struct{ last atomic.Pointer[date] }

type date struct {
	second int64
	text   string
}

func (d *dates) format(t driver.Time) string {
	second := int64(t) / int64(time.Second/time.Microsecond)
	if l := d.last.Load(); l != nil && l.second == second {
		return l.text
	}
	text := t.Time().Format(http.TimeFormat)
	d.last.Store(&date{second, text})
	return text
}
