package semeltemporal

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/saga"
)

// Register makes a saga known to a worker. The secret is Options.DerivationSecret of the guard, from which the keys of
// the steps are derived; nil for none. Otherwise it has at least 16 bytes. The earlier definitions are those under which
// sagas still run; all have the same name, and a version each. Register before the worker is started. The worker's
// WorkflowPanicPolicy has to be worker.BlockWorkflow, which is its default: it lets a saga wait whose version is not
// registered.
//
// The name of the workflow is "saga/" and the saga's. Those of the activities are that of the workflow, "/" and the
// step's; "undo " stands before the name of the step for its compensation.
func Register[S any](w worker.Registry, secret []byte, definition *saga.Definition[S], earlier ...*saga.Definition[S]) (err error) {
	if len(secret) > 0 && len(secret) < defaults.LeastSecret {
		return fmt.Errorf("register saga: the secret has %d bytes, want at least %d", len(secret), defaults.LeastSecret)
	}
	k := &known[S]{secret: append([]byte(nil), secret...), versions: map[string]version[S]{}}
	for _, d := range append([]*saga.Definition[S]{definition}, earlier...) {
		switch {
		case d == nil:
			return fmt.Errorf("register saga: %w: it is nil", saga.ErrDefinition)
		case d.Name() != definition.Name():
			return fmt.Errorf("register saga %q: %w: an earlier one has the name %q", definition.Name(), saga.ErrDefinition, d.Name())
		}
		if _, twice := k.versions[d.Version()]; twice {
			return fmt.Errorf("register saga %q: %w: two have the version %q", d.Name(), saga.ErrDefinition, d.Version())
		}
		k.versions[d.Version()] = version[S]{d, d.Steps()}
	}
	defer func() {
		if value := recover(); value != nil { // the worker has the name already
			err = fmt.Errorf("register saga %q: %w: %v", definition.Name(), saga.ErrDefinition, value)
		}
	}()
	w.RegisterWorkflowWithOptions(k.workflow, workflow.RegisterOptions{Name: workflowName(definition.Name())})
	registered := map[string]bool{}
	for _, v := range k.versions {
		for _, step := range v.steps {
			for _, undo := range []bool{false, true} {
				name := activityName(definition.Name(), step.Name, undo)
				if undo && step.Undo == nil || registered[name] {
					continue
				}
				registered[name] = true
				w.RegisterActivityWithOptions(func(ctx context.Context, c call) (*result, error) {
					return k.call(ctx, step.Name, undo, &c)
				}, activity.RegisterOptions{Name: name})
			}
		}
	}
	return nil
}

// known are the definitions of one saga that a worker has. They are not changed once they are registered.
type known[S any] struct {
	secret   []byte
	versions map[string]version[S]
}

type version[S any] struct {
	definition *saga.Definition[S]
	steps      []saga.Step[S]
}

func workflowName(name string) string { return "saga/" + name }

func activityName(name, step string, undo bool) string {
	return workflowName(name) + "/" + savedName(step, undo)
}

// savedName is the name under which a step, or its compensation, is listed in saga.Status.
func savedName(step string, undo bool) string {
	if undo {
		return "undo " + step
	}
	return step
}
