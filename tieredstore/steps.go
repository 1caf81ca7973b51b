package tieredstore

import (
	"context"

	"github.com/semelhq/semel/driver"
)

// stepper adds what [driver.StepStore] asks for besides the verbs: the durable store's steps. Layers have none.
type stepper struct{ durable driver.StepStore }

// SaveStep implements [driver.StepStore], in the durable store. No layer has a copy of a record that is running.
func (p stepper) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	return p.durable.SaveStep(ctx, id, by, name, result)
}

// Steps implements [driver.StepStore], by the durable store.
func (p stepper) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	return p.durable.Steps(ctx, id)
}
