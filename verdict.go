package semel

import (
	"net/http"
	"strings"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/refusal"
)

// releasedStatus reports whether a status promises that nothing happened.
func releasedStatus(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusPreconditionRequired,
		http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// verdict decides what becomes of an answer. First counts what the handler asked for, then the result of the route's
// own function, then the rules of.
func (p *policy) verdict(asked Verdict, status int, header http.Header, body []byte) Verdict {
	if asked != VerdictDefault {
		return asked
	}
	if p.Decide != nil {
		if v := p.Decide(status, header, body); v != VerdictDefault {
			return v
		}
	}
	return p.byRules(status, header)
}

// byRules decides by the status and the header of the answer.
func (p *policy) byRules(status int, header http.Header) Verdict {
	switch {
	case foreignRefusal(header) != "":
		return VerdictRelease
	case status >= 200 && status < 300:
		return VerdictKeep
	case p.KeepOnlySuccess, releasedStatus(status), status >= 400 && status < 500 && len(header["Retry-After"]) > 0:
		return VerdictRelease
	case status >= 500 && p.OnError == ReleaseErrors:
		return VerdictRelease
	}
	return VerdictKeep
}

// foreignRefusal returns the code of the refusal if an answer is the refusal of another guard, else "". Such an answer
// is never the operation's outcome. The other guard has the key too, never runs it twice, and alone knows what has
// become of it. So the next attempt asks that guard again, even where its refusal says that there may have been an
// effect (R-42, R-59a).
func foreignRefusal(header http.Header) refusal.Code {
	code := header[answer.CodeHeader]
	if len(code) != 1 || !strings.HasPrefix(code[0], "IDEMPOTENCY_") {
		return ""
	}
	return refusal.Code(code[0])
}

// stateFor returns the state in which a run ends with a verdict.
func (p *policy) stateFor(v Verdict) driver.State {
	switch v {
	case VerdictRelease:
		return driver.Free
	case VerdictUnknown:
		return driver.Unknown
	case VerdictLost:
		if p.OnLost == Rerun {
			return driver.Free
		}
		return driver.Unknown
	}
	return driver.Done
}
