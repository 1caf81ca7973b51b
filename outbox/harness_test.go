package outbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/outboxtest"
)

// A broker is a publisher that notes what comes.
type broker struct {
	mu      sync.Mutex
	came    []string
	batches [][]string
	answer  func(ctx context.Context, m *outbox.Message) error
}

func (b *broker) Publish(ctx context.Context, batch []*outbox.Message) []error {
	errs := make([]error, len(batch))
	var ids []string
	for i, m := range batch {
		ids = append(ids, m.ID)
		if b.answer != nil {
			errs[i] = b.answer(ctx, m)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.came = append(b.came, ids...)
	b.batches = append(b.batches, ids)
	return errs
}

func (b *broker) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.came)
}

func memory(t *testing.T) *outboxtest.Memory {
	t.Helper()
	m, err := outboxtest.NewMemory(outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func add(t *testing.T, m *outboxtest.Memory, messages ...outbox.Message) {
	t.Helper()
	if err := m.Add(messages...); err != nil {
		t.Fatal(err)
	}
}

// start runs a relay until what is returned is called, which returns the error of Run.
func start(t *testing.T, s outbox.Store, p outbox.Publisher, o outbox.RelayOptions) (r *outbox.Relay, stop func() error) {
	t.Helper()
	r, err := outbox.NewRelay(s, p, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return r, func() error {
		cancel()
		return <-ended
	}
}

func mustStop(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func states(t *testing.T, m *outboxtest.Memory, s outbox.State) (ids []string) {
	t.Helper()
	if err := m.List(t.Context(), outbox.Query{State: s}, func(e outbox.Entry) bool {
		ids = append(ids, e.ID)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return ids
}

func msg(id, topic, key string) outbox.Message { return outbox.Message{ID: id, Topic: topic, Key: key} }

type publisher func(context.Context, []*outbox.Message) []error

func (p publisher) Publish(ctx context.Context, batch []*outbox.Message) []error {
	return p(ctx, batch)
}
