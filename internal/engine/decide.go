package engine

import "github.com/semelhq/semel/driver"

// An Ending says how the handler, or the function, of a run has ended.
type Ending struct {
	Returned bool // no panic, no Goexit
	Success  bool // it gave no error: its answer says that something was done, or it gave none
	// Decide decides by the answer. It is called only if the answer matters. If nothing is set, it is certain that nothing
	// has happened: then an error frees the operation.
	Decide func(nothing bool) Decision
}

// A Decision is the outcome with which a run is settled, and what it means for the run's own client.
type Decision struct {
	Outcome driver.Outcome
	Lost    bool // no answer, but perhaps an effect
	Nothing bool // no effect: the client is told so, whatever the answer was
}

// Decide decides about the outcome of a run whose handler has ended.
func (r *Run) Decide(e Ending) Decision {
	d := r.decide(e)
	if r.Policy.OneCommit && d.Outcome.State != driver.Done && d.Lost {
		d.Lost, d.Nothing = false, true // nothing of the run will be recorded, so there is no doubt
	}
	return d
}

func (r *Run) decide(e Ending) Decision {
	nothing := r.provesNothing()
	lost := r.lost.Load()
	switch {
	case r.joint.state >= doubtful:
		return Decision{Outcome: r.joint.outcome}
	case !e.Returned && nothing:
		return Decision{Outcome: driver.Outcome{State: driver.Free, Error: "the handler did not return; its transaction was rolled back", Owed: true}}
	case !e.Returned:
		return Decision{Outcome: r.Policy.lost("the handler did not return")}
	case lost != nil:
		return r.DecideLost(errorText(lost.err))
	case r.joint.state == rolledBack && e.Success && nothing:
		return Decision{Nothing: true, Outcome: driver.Outcome{State: driver.Free, Error: "its transaction was rolled back"}}
	case r.joint.state == rolledBack && e.Success:
		return r.DecideLost("its transaction was rolled back, but there may be an effect elsewhere")
	}
	return e.Decide(nothing)
}

// DecideLost is the decision about a run that has no answer, but perhaps an effect.
func (r *Run) DecideLost(why string) Decision {
	return Decision{Outcome: r.Policy.lost(why), Lost: true}
}

func errorText(err error) string {
	if err == nil {
		return "lost"
	}
	return err.Error()
}
