package npmtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/verify"
)

// A fact is what is true of express-idempotency 1.0.6 in server.js.
type fact struct {
	name  string
	fault verify.Severity // how bad it is; "" if it is right
	rule  string          // what it breaks or keeps
	check string          // of verify, that tells of the fault, or has nothing to tell; "" if none looks there
	own   bool            // it needs an API of its own
	try   func(*session) string
	want  string
}

// facts are in the order of verify's checks.
var facts = []fact{
	{
		name: "repeat", rule: "R-34", check: "repeat",
		try:  func(s *session) string { return s.on("/payments", 4) },
		want: "201, 201 again, 201 again, 201 again; 1 effect",
	},
	{
		name: "at once", rule: "R-26", check: "concurrent",
		try:  func(s *session) string { return s.counted(s.atOnce(s.payment, 20)) },
		want: "20 times 201; 1 effect",
	},
	{
		name: "while it runs", rule: "R-26", check: "concurrent",
		try: func(s *session) string {
			slow := s.payment.on("/payments/slow?ms=600000")
			defer s.begin(slow)()
			return s.counted(s.atOnce(slow, 19))
		},
		want: "19 times 409; 0 effects",
	},
	{
		name: "no Retry-After", fault: verify.Protocol, rule: "R-27", check: "retry-after",
		try: func(s *session) string {
			slow := s.payment.on("/payments/slow?ms=600000")
			defer s.begin(slow)()
			r := s.send(slow)
			return fmt.Sprintf("%s, Retry-After %q", r, r.header.Get("Retry-After"))
		},
		want: `409, Retry-After ""`,
	},
	{
		name: "two keys of one request", rule: "R-10", check: "two-keys",
		try: func(s *session) string {
			return s.told(s.send(s.payment), s.send(s.payment.keyed("key-another")))
		},
		want: "201, 201; 2 effects",
	},
	{
		// 417 is the package's own choice.
		name: "another body", rule: "R-16", check: "mismatch-body",
		try: func(s *session) string {
			return s.told(s.send(s.payment), s.send(s.payment.saying(bodyOf(s.order, "101"))), s.send(s.payment))
		},
		want: "201, 417, 201 again; 1 effect",
	},
	{
		// Bodies are compared by deep-equal in its loose mode, in which "100" equals 100. Without the used key this body
		// gets 422.
		name: "an amount that is a text", fault: verify.Safety, rule: "R-20", check: "mismatch-type",
		try: func(s *session) string {
			text := s.payment.saying(bodyOf(s.order, `"100"`))
			return s.told(s.send(s.payment), s.send(text), s.send(text.keyed("key-of-a-text")))
		},
		want: "201, 201 again, 422; 1 effect",
	},
	{
		name: "an amount that is a truth value", fault: verify.Safety, rule: "R-20",
		try: func(s *session) string {
			return s.told(s.send(s.payment.saying(bodyOf(s.order, "1"))), s.send(s.payment.saying(bodyOf(s.order, "true"))))
		},
		want: "201, 201 again; 1 effect",
	},
	{
		// Bodies are compared after JavaScript has read their numbers.
		name: "amounts that differ beyond 2^53", fault: verify.Safety, rule: "R-20",
		try: func(s *session) string {
			first := s.payment.saying(bodyOf(s.order, "9007199254740992"))
			return s.told(s.send(first), s.send(first.saying(bodyOf(s.order, "9007199254740993"))))
		},
		want: "201, 201 again; 1 effect",
	},
	{
		name: "another query", rule: "R-17", check: "mismatch-query",
		try: func(s *session) string {
			return s.told(s.send(s.payment), s.send(s.payment.on("/payments?currency=EUR")), s.send(s.payment))
		},
		want: "201, 417, 201 again; 1 effect",
	},
	{
		name: "another path", rule: "R-13", check: "mismatch-path",
		try: func(s *session) string {
			return s.told(s.send(s.payment), s.send(s.payment.on("/payments/large")), s.send(s.payment))
		},
		want: "201, 417, 201 again; 1 effect",
	},
	{
		name: "another body while it runs", rule: "R-16", check: "mismatch-running",
		try: func(s *session) string {
			slow := s.payment.on("/payments/slow?ms=600000")
			defer s.begin(slow)()
			return s.told(s.send(slow.saying(bodyOf(s.order, "101"))))
		},
		want: "417; 0 effects",
	},
	{
		name: "JSON in another order", rule: "R-20", check: "json-reordered",
		try: func(s *session) string {
			other := fmt.Sprintf(`{ "amount" : 100, "order" : %q }`, s.order)
			return s.told(s.send(s.payment), s.send(s.payment.saying(other)))
		},
		want: "201, 201 again; 1 effect",
	},
	{
		// As the README says.
		name: "no key", rule: "R-7",
		try:  func(s *session) string { s.payment = s.payment.keyed(); return s.on("/payments", 2) },
		want: "201, 201; 2 effects",
	},
	{
		name: "a key in quotation marks", fault: verify.Advice, rule: "R-5", check: "key-forms",
		try: func(s *session) string {
			return s.told(s.send(s.payment), s.send(s.payment.keyed(`"`+s.payment.keys[0]+`"`)))
		},
		want: "201, 201; 2 effects",
	},
	{
		// Whatever has a length is a key: it is replayed, but never refused.
		name: "an unclosed key", fault: verify.Advice, rule: "R-2", check: "key-malformed",
		try:  func(s *session) string { s.payment = s.payment.keyed(`"unclosed`); return s.on("/payments", 2) },
		want: "201, 201 again; 1 effect",
	},
	{
		name: "a key with white space", fault: verify.Advice, rule: "R-2", check: "key-malformed",
		try:  func(s *session) string { s.payment = s.payment.keyed("a\t key"); return s.on("/payments", 2) },
		want: "201, 201 again; 1 effect",
	},
	{
		// An empty key counts as none.
		name: "an empty key", fault: verify.Safety, rule: "R-3", check: "key-malformed",
		try:  func(s *session) string { s.payment = s.payment.keyed(""); return s.on("/payments", 2) },
		want: "201, 201; 2 effects",
	},
	{
		// Node.js joins the lines: they are one key, "key, key", that is neither of them.
		name: "the same key in two lines", fault: verify.Protocol, rule: "R-4", check: "key-two-lines",
		try: func(s *session) string {
			key := s.payment.keys[0]
			twice := s.send(s.payment.keyed(key, key))
			echo := strings.ReplaceAll(twice.header.Get("Idempotency-Key"), key, "K")
			return s.told(twice, s.send(s.payment)) + fmt.Sprintf("; key echoed as %q", echo)
		},
		want: `201, 201; 2 effects; key echoed as "K, K"`,
	},
	{
		name: "a key of 4000 characters", fault: verify.Advice, rule: "R-6", check: "key-too-long",
		try: func(s *session) string {
			s.payment = s.payment.keyed(strings.Repeat("k", 4000))
			return s.on("/payments", 2)
		},
		want: "201, 201 again; 1 effect",
	},
	{
		name: "keys that differ in case", rule: "R-6", check: "key-case",
		try: func(s *session) string {
			return s.told(s.send(s.payment.keyed("Key-Of-Case")), s.send(s.payment.keyed("key-of-case")))
		},
		want: "201, 201; 2 effects",
	},
	{
		name: "long keys that differ at their end", rule: "R-6", check: "key-prefix",
		try: func(s *session) string {
			long := strings.Repeat("p", 190)
			return s.told(s.send(s.payment.keyed(long+"-a")), s.send(s.payment.keyed(long+"-b")))
		},
		want: "201, 201; 2 effects",
	},
	{
		name: "GET with a key", rule: "R-8", check: "methods",
		try: func(s *session) string {
			read := get("/payments").keyed(s.payment.keys[0])
			before := s.send(read)
			s.send(s.payment)
			after := s.send(read)
			return fmt.Sprintf("%s, %s, the same: %t", before, after, after.same(before))
		},
		want: "200, 200, the same: false",
	},
	{
		// Keys belong to nobody: Bob is given Alice's payment, and his own is never made.
		name: "another customer's key, and the same request", fault: verify.Safety, rule: "R-10", check: "tenants",
		try: func(s *session) string {
			bob := s.payment.with("Authorization", "Bearer bob")
			return s.told(s.send(s.payment), s.send(bob))
		},
		want: "201, 201 again; 1 effect",
	},
	{
		name: "another customer's key, and another request", fault: verify.Safety, rule: "R-10",
		try: func(s *session) string {
			bob := s.payment.with("Authorization", "Bearer bob").saying(bodyOf(s.order, "101"))
			return s.told(s.send(s.payment), s.send(bob))
		},
		want: "201, 417; 1 effect",
	},
	{
		// Of the first answer's fields Content-Type alone is kept.
		name: "a replay without Location", fault: verify.Protocol, rule: "R-34", check: "fidelity",
		try: func(s *session) string {
			first, again := s.send(s.payment), s.send(s.payment)
			var kept []string
			for _, name := range []string{"Content-Type", "Location"} {
				if first.header.Get(name) == "" {
					s.Errorf("the first answer has no %s", name)
				}
				if again.header.Get(name) == first.header.Get(name) {
					kept = append(kept, name)
				}
			}
			return fmt.Sprint(first, " ", again, ", kept ", kept)
		},
		want: "201 201, kept [Content-Type]",
	},
	{
		name: "a replay that looks like a first answer", fault: verify.Advice, rule: "R-34", check: "marker",
		try: func(s *session) string {
			first, again := s.send(s.payment), s.send(s.payment)
			var more []string
			for name := range again.header {
				if first.header.Get(name) == "" {
					more = append(more, name)
				}
			}
			return fmt.Sprint(first, " ", again, ", fields that are new ", more)
		},
		want: "201 201, fields that are new []",
	},
	{
		name: "a large answer", rule: "R-34", check: "large",
		try:  func(s *session) string { return s.on("/payments/large", 2) },
		want: "201, 201 again; 1 effect",
	},
	{
		// The package listens to send(), which end() never calls: what was answered so stays in progress.
		name: "an empty answer", fault: verify.Protocol, rule: "R-37", check: "empty",
		try:  func(s *session) string { return s.on("/payments/empty", 3) },
		want: "204, 409, 409; 1 effect",
	},
	{
		name: "an empty answer by sendStatus", rule: "R-37",
		try:  func(s *session) string { return s.on("/payments/empty-sent", 2) },
		want: "204, 204 again; 1 effect",
	},
	{
		name: "a binary answer", rule: "R-37", check: "binary",
		try:  func(s *session) string { return s.on("/payments/binary", 2) },
		want: "201, 201 again; 1 effect",
	},
	{
		// As with the empty answer. That it is not run again is right; that it is in progress is not true.
		name: "a stream", fault: verify.Protocol, rule: "R-46", check: "stream",
		try:  func(s *session) string { return s.on("/payments/stream", 3) },
		want: "200, 409, 409; 1 effect",
	},
	{
		// Only 2xx is kept, as the README says: each repeat is a decision of its own.
		name: "a declined card", fault: verify.Protocol, rule: "R-42", check: "declined",
		try:  func(s *session) string { return s.on("/payments/declined", 2) },
		want: "402, 402; 0 effects",
	},
	{
		name: "a failure after the effect", fault: verify.Safety, rule: "R-43", check: "failing",
		try:  func(s *session) string { return s.on("/payments/failing", 3) },
		want: "500, 500, 500; 3 effects",
	},
	{
		// Express answers by end().
		name: "an error that is thrown after the effect", fault: verify.Protocol, rule: "R-32",
		try:  func(s *session) string { return s.on("/payments/throwing", 3) },
		want: "500, 409, 409; 1 effect",
	},
	{
		name: "a request that was turned away", rule: "R-42", check: "limited",
		try: func(s *session) string {
			early := s.send(s.payment.on("/payments/limited"))
			return early.String() + ", " + s.on("/payments/limited", 2)
		},
		want: "429, 201, 201 again; 1 effect",
	},
	{
		// Not run again, which is right, and in progress without end.
		name: "a connection that broke off", fault: verify.Protocol, rule: "R-46", check: "dropped",
		try:  func(s *session) string { return s.on("/payments/dropped", 3) },
		want: "no answer, 409, 409; 1 effect",
	},
	{
		name: "a path where nobody is", fault: verify.Protocol, rule: "R-42",
		try:  func(s *session) string { return s.on("/nowhere", 2) },
		want: "404, 409; 0 effects",
	},
	{
		name: "a client that hangs up", rule: "R-29", check: "disconnect",
		try: func(s *session) string {
			slow := s.payment.on("/payments/slow?ms=1000")
			s.begin(slow)()
			last := s.settled(slow)
			return s.told(last, s.send(slow))
		},
		want: "201, 201 again; 1 effect",
	},
	{
		// The mark of a hit is a field of the request, which a client may send as well. The handler then leaves the answer
		// to the middleware, which leaves it to the handler.
		name: "X-Hit from the client", fault: verify.Protocol, rule: "R-32",
		try: func(s *session) string {
			after := s.payment.keyed("key-behind-a-hit")
			conn, in := s.pipelined(s.payment.with("X-Hit", "true"), after)
			s.until("the second request has its effect", func() bool { return s.effects() == "1 effect" })
			if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				s.Fatal(err)
			}
			hit := read(http.ReadResponse(in, nil))
			return s.told(hit, s.send(s.payment), s.send(s.payment), s.send(after))
		},
		want: "no answer, 409, 409, 201; 1 effect",
	},
	{
		// Keys are in memory, which the README does not recommend, and payments are not.
		name: "a crash after the answer", fault: verify.Safety, rule: "R-30", check: "crash-after-answer", own: true,
		try: func(s *session) string {
			first := s.send(s.payment)
			s.api.crash(s.T)
			return s.told(first, s.send(s.payment))
		},
		want: "201, 201; 2 effects",
	},
	{
		name: "a crash after the effect", fault: verify.Safety, rule: "R-46", check: "crash-after-effect", own: true,
		try: func(s *session) string {
			leave := s.begin(s.payment.on("/payments/slow-answer?ms=600000"))
			s.until("the effect is there", func() bool { return s.effects() == "1 effect" })
			s.api.crash(s.T)
			leave()
			return s.told(s.send(s.payment))
		},
		want: "201; 2 effects",
	},
	{
		// What was forgotten may as well run.
		name: "a crash before the effect", rule: "R-46", check: "crash-before-effect", own: true,
		try: func(s *session) string {
			leave := s.begin(s.payment.on("/payments/slow?ms=600000"))
			s.api.crash(s.T)
			leave()
			return s.told(s.send(s.payment))
		},
		want: "201; 1 effect",
	},
	{
		// There is one owner, and no lease that it could sleep through.
		name: "a pause", rule: "R-48", check: "pause", own: true,
		try: func(s *session) string {
			slow := s.payment.on("/payments/slow?ms=1000")
			leave := s.begin(slow)
			s.api.run(s.T, s.api.process.Pause)
			leave()
			s.api.run(s.T, s.api.process.Resume)
			last := s.settled(slow)
			return s.told(last, s.send(slow))
		},
		want: "201, 201 again; 1 effect",
	},
}

func TestWhatIsTrueOfExpressIdempotency(t *testing.T) {
	t.Parallel()
	shared := start(t)
	t.Run("facts", func(t *testing.T) { // the API outlives them
		for i, f := range facts {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				a := shared
				if f.own {
					a = start(t)
				}
				if got := f.try(newSession(t, a, fmt.Sprint(i))); got != f.want {
					t.Errorf("%s: %s; want %s", f.rule, got, f.want)
				}
			})
		}
	})
}
