package shop

import (
	"net/http"
	"strings"

	"github.com/semelhq/semel"
)

// How two ETags are compared (RFC 9110, section 8.8.3.2): weakly for what is read, strongly for what is changed.
type comparison bool

const (
	weakly   comparison = true
	strongly comparison = false
)

// matches reports whether a list of ETags, as If-Match and If-None-Match have it, has the tag of what is there.
func matches(list, tag string, how comparison) bool {
	if strings.TrimSpace(list) == "*" {
		return true
	}
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if how == weakly {
			one = strings.TrimPrefix(one, "W/")
		}
		if one == tag {
			return true
		}
	}
	return false
}

// changed refuses a change of something that the client has not seen as it is now.
func changed(what, tag string) *Problem {
	return refuse(http.StatusPreconditionFailed, "changed", "the "+what+" has changed: its ETag is "+tag+" now")
}

// unconditional refuses a change that does not say what it is a change of. A client may add that under the same key.
func unconditional(op *semel.Operation, detail string) *Problem {
	op.Release()
	return refuse(http.StatusPreconditionRequired, "precondition_required", detail)
}
