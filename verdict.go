package semel

import "net/http"

// releasedStatus lists the statuses that promise that nothing happened.
func releasedStatus(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusPreconditionRequired,
		http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// verdict decides what becomes of an answer: what the handler asked for, then what the route's own function says, then
// the rules of.
func (p *policy) verdict(asked Verdict, status int, header http.Header, body []byte) Verdict {
	if asked != VerdictDefault {
		return asked
	}
	if p.Decide != nil {
		if v := p.Decide(status, header, body); v != VerdictDefault {
			return v
		}
	}
	return p.byStatus(status)
}

// byStatus decides by the status alone.
func (p *policy) byStatus(status int) Verdict {
	switch {
	case status >= 200 && status < 300:
		return VerdictKeep
	case p.KeepOnlySuccess, releasedStatus(status):
		return VerdictRelease
	case status >= 500 && p.OnError == ReleaseErrors:
		return VerdictRelease
	}
	return VerdictKeep
}

// stateFor returns the state in which a run ends with a verdict.
func (p *policy) stateFor(v Verdict) State {
	switch v {
	case VerdictRelease:
		return Free
	case VerdictUnknown:
		return Unknown
	case VerdictLost:
		return p.lostState()
	}
	return Done
}

// lost is what a run is settled with that has no answer, perhaps an effect.
func (p *policy) lost(why string) Outcome {
	return Outcome{State: p.lostState(), Error: why, Owed: p.OnLost == Rerun}
}

func (p *policy) lostState() State {
	if p.OnLost == Rerun {
		return Free
	}
	return Unknown
}
