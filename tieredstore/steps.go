package tieredstore

import (
	"context"

	"github.com/semelhq/semel"
)

// stepper adds what [semel.StepStore] asks for besides the verbs: the durable store's steps. Layers have none.
type stepper struct{ durable semel.StepStore }

// SaveStep implements [semel.StepStore], in the durable store. No layer has a copy of a record that is running.
func (p stepper) SaveStep(ctx context.Context, id semel.ID, by semel.Owner, name string, result []byte) (bool, error) {
	return p.durable.SaveStep(ctx, id, by, name, result)
}

// Steps implements [semel.StepStore], by the durable store.
func (p stepper) Steps(ctx context.Context, id semel.ID) (map[string][]byte, error) {
	return p.durable.Steps(ctx, id)
}
