package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A scene is one thing that happens in production.
type scene struct {
	title, why string
	expected   string // in few words, for the table
	play       func(context.Context, *act)
	alone      bool // in processes of its own
}

// An act is a scene being played: it prints what happens, and remembers what went wrong.
type act struct {
	*stage
	got     []string
	charged []string
	checks  []bool // whether each check held
}

func (s *stage) play(ctx context.Context, n int, sc *scene) row {
	a := &act{stage: s}
	s.heading(n, sc)
	sc.play(ctx, a)
	return row{
		number: n, title: sc.title, expected: sc.expected,
		got: strings.Join(a.got, ", "), charges: strings.Join(a.charged, ", "),
		checks: a.checks, ok: !slices.Contains(a.checks, false),
	}
}

// exchange sends a request and prints it with its reply.
func (a *act) exchange(ctx context.Context, r request) reply {
	a.request(r, "")
	rep := r.send(ctx)
	a.reply(rep)
	a.saw(rep)
	return rep
}

// several prints how often an answer came, if it did.
func (a *act) several(n int, answer string) {
	if n > 0 {
		a.printf("   ← %3d × %s\n", n, answer)
	}
}

func (a *act) saw(r reply) { a.got = append(a.got, r.brief()) }

// check prints what was checked, and whether it holds.
func (a *act) check(ok bool, format string, args ...any) {
	a.checks = append(a.checks, ok)
	a.printf("   %s %s\n", a.mark(ok), fmt.Sprintf(format, args...))
}

// did checks that a preparation succeeded.
func (a *act) did(err error) bool {
	if err != nil {
		a.check(false, "%v", err)
	}
	return err == nil
}

// charges checks the ledger: so many charges for the order, once nothing runs any more.
func (a *act) charges(ctx context.Context, order string, want int) {
	n, err := a.count(ctx, order)
	if !a.did(err) {
		return
	}
	a.charged = append(a.charged, fmt.Sprint(n))
	a.check(n == want, "ledger: %s for %s", plural(n, "charge"), order)
}

func (a *act) count(ctx context.Context, order string) (int, error) {
	if err := a.idle(ctx); err != nil {
		return 0, fmt.Errorf("wait for the service: %w", err)
	}
	charges, err := a.ledger.charges(order)
	return len(charges), err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
