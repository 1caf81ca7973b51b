package storetest

import (
	"fmt"
	"strings"

	"github.com/semelhq/semel/driver"
)

// maxStepName is the longest name of a step, in bytes.
const maxStepName = 255

// stepNames returns names that a store may mistake for each other, or for something else than a name.
func stepNames() []string {
	return []string{
		"a", "A", "a ", " a", "a\t", "a\n", "\r\n", " ", ".", "..", "../../etc/passwd", "a/b", "a:b", "a,b", "{a}", "a=b",
		"0", "00", "1", "-1", "1e3", "null", "nil", "true", "undefined", "__proto__", "constructor", "data", "id",
		"fence", "token", "state", "name", "result", "steps",
		"ä", "a\u0308", "Ä", "ß", "ss", "ı", "i", "İ", "ſ", "s", "K", "k", // composed or not, upper or lower, or nearly the same
		"名前", "имя", "اسم", "🧾", "👩‍🚀", "\u202e", "\u2028", "\ufeff", "\ufffd", "\x01", "\x1b[31m", "\x7f", "\U0010ffff",
		`'; DROP TABLE semel_steps; --`, `' OR '1'='1`, `"`, "'", "`", `\`, `\x00`, `\0`, "%", "_", "a%", "$1", ":a", "@a", "?",
		"return redis.call('FLUSHALL')", "]]", "${x}", "{{x}}", "%s", "%00", "<script>alert(1)</script>",
		strings.Repeat("n", maxStepName), strings.Repeat("n", maxStepName-1), strings.Repeat("ü", maxStepName/2),
		strings.Repeat("名", maxStepName/3), strings.Repeat("🧾", maxStepName/4),
	}
}

var stepPayloadChecks = []check{
	{
		name: "names are exact and apart",
		promise: "Any name of 1 to 255 bytes of UTF-8 without NUL is a name of its own: nothing is folded, trimmed, normalized, cut " +
			"or taken for a command (R-62).",
		needs: stepper,
		run: func(e *env) {
			id := newID()
			rec := e.a.begin(id, ask(driver.Rerun))
			want := map[string]string{}
			for i, name := range stepNames() {
				want[name] = fmt.Sprintf("%d of %x", i, name)
				e.both(i).keep(id, rec.Owner(), name, want[name])
			}
			e.holds("saved", id, want)
			for i, name := range stepNames() {
				e.both(i).keep(id, rec.Owner(), name, "again")
			}
			e.holds("saved again", id, want)
		},
	},
	{
		name:    "results are exact",
		promise: "A result comes back byte for byte: binary, empty, 0, null, one mebibyte. An empty one is saved like any other.",
		needs:   stepper,
		run: func(e *env) {
			id := newID()
			rec := e.a.begin(id, ask(driver.Rerun))
			want := map[string]string{
				"a little over 64K": string(noise(1<<16 + 1)),
				"one mebibyte":      string(noise(1 << 20)),
			}
			for what, text := range hostile() {
				want[what] = text
			}
			for name, result := range want {
				e.a.keep(id, rec.Owner(), name, result)
			}
			e.holds("saved", id, want)
			e.b.end(id, rec.Owner(), done(answer()))
			e.holds("done", id, want)

			id = newID()
			rec = e.a.begin(id, ask(driver.Rerun))
			if owned, err := e.b.Store.(driver.StepStore).SaveStep(e.ctx, id, rec.Owner(), "nothing", nil); !owned || err != nil {
				e.Fatalf("SaveStep without a result: owned is %t, error %v", owned, err)
			}
			e.holds("nothing", id, map[string]string{"nothing": ""})
		},
	},
	{
		name:    "an operation may have many",
		promise: "Two hundred steps of one operation are kept, over a release and a second run, and go together.",
		needs:   stepper,
		run: func(e *env) {
			const steps = 200
			id, c := newID(), ask(driver.Rerun)
			c.Retention = e.short
			rec := e.a.begin(id, c)
			want := map[string]string{}
			for i := range steps {
				name := fmt.Sprintf("item %d", i)
				want[name] = fmt.Sprintf(`{"item":%d}`, i)
				e.both(i).keep(id, rec.Owner(), name, want[name])
				if i == steps/2 {
					e.b.end(id, rec.Owner(), free("interrupted"))
					rec = e.a.begin(id, retry(c))
					e.sameSteps("half of them", e.a.steps(id), want)
				}
			}
			e.holds("saved", id, want)
			rec = e.b.end(id, rec.Owner(), done(nil))
			e.until(rec.Settled.Add(e.short))
			e.anew("after its retention", id, rec)
		},
	},
	{
		name:    "each operation has its own",
		promise: "Steps of operations whose ids differ in one bit, or that are of one scope, are apart, whatever their names.",
		needs:   stepper,
		run: func(e *env) {
			ids := []driver.ID{newID()}
			for _, bit := range []int{0, 1, 63, 64, 127, 128, 129, 255, 256, 376, 383} {
				id := ids[0]
				id[bit/8] ^= 1 << (bit % 8)
				ids = append(ids, id)
			}
			recs := make([]driver.Record, len(ids))
			for i, id := range ids {
				recs[i] = e.a.begin(id, ask(driver.Hold))
			}
			want := make([]map[string]string, len(ids))
			for i, id := range ids {
				if i%3 != 0 {
					want[i] = map[string]string{"charge": fmt.Sprintf("of %d", i), fmt.Sprintf("only %d", i): ""}
				}
				for name, result := range want[i] {
					e.both(i).keep(id, recs[i].Owner(), name, result)
				}
			}
			for i, id := range ids {
				e.holds(fmt.Sprintf("operation %d", i), id, want[i])
			}
		},
	},
}
