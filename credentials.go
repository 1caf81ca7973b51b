package semel

import (
	"crypto/hmac"
	"errors"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/credentials"
	"github.com/semelhq/semel/refusal"
)

var errOtherCredentials = errors.New("the first request had other credentials, or which it had is not known")

// mayHave says why a stored answer must not be given to this request. A request with the credentials of the first
// request may have it. About any other request Policy.AuthorizeReplay decides. For a question about an operation,
// mayHave is as strict as the strictest route, because it can't be told which route the operation is of.
func (x *exchange) mayHave(answer *driver.Response) error {
	p := x.g.policy
	compares := x.compares()
	if compares {
		kept := credentials.Stored(answer.Header)
		given := credentials.Of(x.g.identity, &x.ask.ID, kept.Names, x.r)
		if kept.Digest != "" && hmac.Equal([]byte(kept.Digest), []byte(given.Digest)) {
			return nil
		}
	}
	switch {
	case p.AuthorizeReplay != nil:
		return p.AuthorizeReplay(x.shown())
	case compares:
		return errOtherCredentials
	case x.question && x.g.authorizes.Load():
		return errors.New("routes have Policy.AuthorizeReplay, and that of Guard.Operations has none")
	}
	return nil
}

// withheld is the refusal that follows from an error of mayHave. If AuthorizeReplay could not be asked, it may allow
// the replay later, and the operation has happened. So the client must come back with this key, and not go on with
// another.
func (x *exchange) withheld(err error) *Problem {
	if errors.Is(err, refusal.OutcomePending) {
		return x.g.problem(refusal.OutcomePending, "whether the stored answer may be shown can't be told now").because(err)
	}
	return x.g.problem(refusal.ReplayForbidden, "").because(err)
}

// compares reports whether a repeat must have the credentials of the first request.
func (x *exchange) compares() bool {
	return len(x.g.policy.Credentials) > 0 || x.question && x.g.compares.Load()
}
