package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// processLease is the lease of the gateways that are killed.
const processLease = time.Second

// crash lets a gateway die after the charge and before the answer, and starts it again on the same file. It returns the
// request, which has got no answer.
func (a *act) crash(ctx context.Context, p *process, r request, order string) bool {
	if !a.did(p.start(ctx)) {
		return false
	}
	a.request(r, "")
	answered := make(chan reply, 1)
	go func() { answered <- r.send(ctx) }()
	charged := func() bool {
		n, err := a.ledger.charges(order)
		return err == nil && len(n) > 0
	}
	if !a.did(until(ctx, charged)) || !a.did(p.kill()) {
		return false
	}
	rep := <-answered
	a.reply(rep)
	a.saw(rep)
	a.note("the card is charged; kill -9 has ended the gateway before it had the answer")
	if !a.did(p.start(ctx)) {
		return false
	}
	a.note("it is started again, on the same file")
	return true
}

// insist sends a request until it gets something else than "in progress", and prints what came.
func (a *act) insist(ctx context.Context, r request) reply {
	var rep reply
	waited := 0
	a.did(until(ctx, func() bool {
		if waited > 0 {
			pause(ctx, 100*time.Millisecond)
		}
		waited++
		rep = r.send(ctx)
		return rep.err == nil && rep.code() != "IDEMPOTENCY_IN_PROGRESS"
	}))
	a.several(waited-1, a.status(http.StatusConflict)+"   in progress, until the dead gateway's lease of "+processLease.String()+" is over")
	a.reply(rep)
	a.saw(rep)
	return rep
}

func killedAndHeld(ctx context.Context, a *act) {
	p, err := a.newProcess("hold", "--on-lost", "hold")
	if !a.did(err) {
		return
	}
	r := payFor("order-10", "pay-order-10", answersAfter(5*time.Second)).via(p.front)
	if !a.crash(ctx, p, r, "order-10") {
		return
	}
	rep := a.insist(ctx, r)
	a.check(rep.code() == "IDEMPOTENCY_OUTCOME_UNKNOWN", "not paid twice, not called a failure: nobody but the bank knows")
	a.charges(ctx, "order-10", 1)
	a.held = p
}

func settledByTheOperator(ctx context.Context, a *act) {
	if a.held == nil {
		a.check(false, "the scene before it has left nothing to settle")
		return
	}
	charges, err := a.ledger.charges("order-10")
	if !a.did(err) || len(charges) == 0 {
		return
	}
	c := charges[0]
	a.note("the operator asks the bank: it has charge %s. So the payment gets the answer that was lost", c.ID)
	store := a.held.store()
	if !a.command("keys", "find", "pay-order-10", "--scope", "acme", "--store", store) {
		return
	}
	body, err := receiptOf(c)
	if !a.did(err) || !a.did(os.WriteFile(filepath.Join(a.dir, "receipt.json"), []byte(body), 0o600)) {
		return
	}
	if !a.command("keys", "complete", "--key", "pay-order-10", "--scope", "acme", "--store", store, "--actor", "jo",
		"--reason", "the bank has "+c.ID, "--status", "201", "--header", "Content-Type: application/json", "--body-file", "receipt.json") {
		return
	}
	r := payFor("order-10", "pay-order-10", answersAfter(5*time.Second)).via(a.held.front)
	rep := a.exchange(ctx, r)
	a.check(rep.status == http.StatusCreated && rep.replayed() && rep.body == body, "the client's next repeat gets it")
	a.charges(ctx, "order-10", 1)
}

func killedAndRunAgain(ctx context.Context, a *act) {
	p, err := a.newProcess("rerun", "--on-lost", "rerun")
	if !a.did(err) {
		return
	}
	a.note("this endpoint may be run again: it gives the bank the operation's id, and the bank knows it")
	r := payFor("order-12", "pay-order-12", answersAfter(5*time.Second)).via(p.front)
	r.path = safePath
	if !a.crash(ctx, p, r, "order-12") {
		return
	}
	rep := a.insist(ctx, r)
	a.check(rep.status == http.StatusCreated && !rep.replayed(), "the next run finds the charge, and answers")
	again := r.send(ctx)
	a.check(again.replayed() && again.body == rep.body, "repeats get that answer")
	a.charges(ctx, "order-12", 1)
}

func killedAndReconciled(ctx context.Context, a *act) {
	p, err := a.newConfiguredProcess("reconcile", reconcileConfig)
	if !a.did(err) {
		return
	}
	r := payFor("order-13", "pay-order-13", answersAfter(5*time.Second)).via(p.front)
	if !a.crash(ctx, p, r, "order-13") {
		return
	}
	var rep reply
	unknown := 0
	a.did(until(ctx, func() bool {
		rep = a.insistQuietly(ctx, r)
		if rep.code() == "IDEMPOTENCY_OUTCOME_UNKNOWN" {
			unknown++
			pause(ctx, 100*time.Millisecond)
			return false
		}
		return true
	}))
	a.several(unknown, a.status(http.StatusConflict)+"   unknown, until the gateway has asked the service about the operation")
	a.reply(rep)
	a.saw(rep)
	a.check(rep.status == http.StatusCreated && rep.replayed(), "the service said that it was done, and with which answer")
	a.charges(ctx, "order-13", 1)
}

func promisedAndKilled(ctx context.Context, a *act) {
	const keys = "async.keys" // of the gateway, which stores the request encrypted
	if !a.did(os.WriteFile(filepath.Join(a.dir, keys), []byte("1 "+strings.Repeat("5e", 32)+"\n"), 0o600)) {
		return
	}
	p, err := a.newConfiguredProcess("async", asyncConfig)
	if !a.did(err) || !a.did(p.start(ctx)) {
		return
	}
	r := payFor("order-14", "pay-order-14", answersAfter(2*time.Second)).via(p.front)
	r.path, r.prefer = safePath, "respond-async"
	rep := a.exchange(ctx, r)
	location := rep.header.Get("Location")
	promised := rep.status == http.StatusAccepted && location != ""
	a.check(promised, "202: the client is told where to ask, and need not")
	state := ""
	if promised {
		charged := func() bool {
			n, err := a.ledger.charges("order-14")
			return err == nil && len(n) > 0
		}
		if !a.did(until(ctx, charged)) || !a.did(p.kill()) || !a.did(p.start(ctx)) {
			return
		}
		a.note("the card is charged; kill -9 has ended the gateway, and it is started again, on the same file")
		for range 200 {
			if state = r.state(ctx, location); state != "running" {
				break
			}
			pause(ctx, 100*time.Millisecond)
		}
		a.note("GET of that Location says: %s", state)
	}
	r.prefer = ""
	again := a.exchange(ctx, r)
	a.check(state == "succeeded" && again.status == http.StatusCreated && again.replayed(),
		"it was finished without its client; who asks all the same gets the answer")
	a.charges(ctx, "order-14", 1)
}

// receiptOf is the answer that the service gives to the payment which made a charge.
func receiptOf(c charge) (string, error) {
	b, err := json.Marshal(receipt{c.ID, c.Order, c.Amount, c.Currency, "captured"})
	if err != nil {
		return "", fmt.Errorf("make the receipt: %w", err)
	}
	return string(b), nil
}

// insistQuietly sends a request until it gets something else than "in progress".
func (a *act) insistQuietly(ctx context.Context, r request) (rep reply) {
	a.did(until(ctx, func() bool {
		rep = r.send(ctx)
		if rep.code() == "IDEMPOTENCY_IN_PROGRESS" {
			pause(ctx, 100*time.Millisecond)
			return false
		}
		return rep.err == nil
	}))
	return rep
}

const asyncConfig = `listen: %s
admin: %s
upstream: %s
store: %s
scope: header:X-Account
operations: /operations
encryption_keys_file: async.keys
routes:
  - match: POST /payments/safe
    unkeyed: refuse
    on_lost: rerun
    respond_async: true
    lease: 1s
`

const reconcileConfig = `listen: %s
admin: %s
upstream: %s
store: %s
scope: header:X-Account
routes:
  - match: POST /payments
    unkeyed: refuse
    on_lost: hold
    lease: 1s
    reconcile: /operations/{operation}
`
