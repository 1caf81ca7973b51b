package demo

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"
)

var scenes = [...]scene{
	{"A first request", "The payment is made. Its answer is stored before the client gets it.", "201", firstRequest, false},
	{"The same request again", "No second payment: the first answer once more, byte by byte, and marked.", "201 replayed", repeat, false},
	{"A hundred at once", "One of them makes the payment. The others are told to come back.", "1 paid, 99 did not", hundred, false},
	{"Another body, the same key", "A key stands for one request. This one is another, so nothing runs.", "422", otherBody, false},
	{"No key", "This gateway was told to require keys.", "400", noKey, false},
	{"The answer is lost on the wire", "The payment was made, but the client can't know that. It asks again.", "cut, 201 replayed", lostAnswer, false},
	{"An impatient proxy in front", "It times out and tries again by itself, while the payment still runs.", "409, 201 replayed", impatience, false},
	{"A payment outlives its lease", "It is alive, so its lease is renewed, and no repeat takes it over.", "409, 201, 201 replayed", longRun, false},
	{"The service is down", "Not a byte was sent to it, so the same key may try again.", "503, 201", outage, false},
	{"kill -9 in the middle, held", "The gateway dies after the charge and before the answer. What now?", "cut, 409", killedAndHeld, true},
	{"... and its operator decides", "Somebody who can ask the bank says what happened, and why.", "201 replayed", settledByTheOperator, true},
	{"kill -9, and run again", "For a service that is safe to ask again.", "cut, 201", killedAndRunAgain, true},
	{"kill -9, and reconcile", "The gateway asks the service what became of the operation.", "cut, 201 replayed", killedAndReconciled, true},
	{"Answered 202, then kill -9", "The client does not wait for its answer. What it was promised is kept.", "202, 201 replayed", promisedAndKilled, true},
}

var first = payFor("order-1", "pay-order-1")

func firstRequest(ctx context.Context, a *act) {
	r := a.exchange(ctx, first.via(a.front))
	a.original = r
	a.check(r.status == http.StatusCreated && !r.replayed(), "201, and no replay marker")
	a.charges(ctx, "order-1", 1)
}

func repeat(ctx context.Context, a *act) {
	r := a.exchange(ctx, first.via(a.front))
	a.check(r.status == http.StatusCreated && r.replayed(), "201, marked as a replay")
	a.check(r.err == nil && r.body == a.original.body, "the same %d bytes: sha256 %s the first time, %s now",
		len(r.body), digest(a.original.body), digest(r.body))
	location := r.header.Get("Location")
	a.check(location != "" && location == a.original.header.Get("Location"), "the same Location")
	a.charges(ctx, "order-1", 1)
}

func digest(body string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(body)))[:12] + "…" }

func hundred(ctx context.Context, a *act) {
	const n = 100
	r := payFor("order-3", "pay-order-3", takes(300*time.Millisecond)).via(a.front)
	a.request(r, fmt.Sprintf("%d × ", n))
	replies := make([]reply, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() {
			<-start
			replies[i] = r.send(ctx)
		})
	}
	close(start)
	all.Wait()

	var ran, refused, replayed, other int
	var answer, refusal reply
	told := true
	for _, rep := range replies {
		switch {
		case rep.err == nil && rep.status == http.StatusCreated && !rep.replayed():
			ran++
			answer = rep
		case rep.status == http.StatusConflict && rep.code() == "IDEMPOTENCY_IN_PROGRESS":
			refused++
			refusal = rep
			told = told && rep.retryAfter() > 0
		case rep.status == http.StatusCreated:
			replayed++
		default:
			other++
		}
	}
	same := true
	for _, rep := range replies {
		same = same && (!rep.replayed() || rep.body == answer.body)
	}
	a.several(ran, a.status(http.StatusCreated))
	a.several(refused, a.status(http.StatusConflict)+"   Retry-After: "+refusal.header.Get("Retry-After")+"   "+refusal.code())
	a.several(replayed, a.status(http.StatusCreated)+"   Idempotent-Replayed: true")
	a.several(other, a.red("something else"))
	a.got = append(a.got, fmt.Sprintf("%d paid, %d did not", ran, refused+replayed))
	a.check(ran == 1, "%d of %d made the payment", ran, n)
	a.check(other == 0 && same, "every other was told that it runs, or got its answer")
	a.check(told, "every 409 says when to come back")
	a.charges(ctx, "order-3", 1)
}

func otherBody(ctx context.Context, a *act) {
	r := first.via(a.front)
	r.body = `{"order":"order-1","amount":9900,"currency":"EUR"}`
	rep := a.exchange(ctx, r)
	a.check(rep.status == http.StatusUnprocessableEntity && rep.code() == "IDEMPOTENCY_KEY_REUSED", "422, and why")
	again := first.via(a.front).send(ctx)
	a.check(again.status == http.StatusCreated && again.replayed(), "the first request still gets its answer")
	a.charges(ctx, "order-1", 1)
}

func noKey(ctx context.Context, a *act) {
	rep := a.exchange(ctx, payFor("order-5", "").via(a.front))
	a.check(rep.status == http.StatusBadRequest && rep.code() == "IDEMPOTENCY_KEY_REQUIRED", "400, and why")
	a.charges(ctx, "order-5", 0)
}

func lostAnswer(ctx context.Context, a *act) {
	wire, err := newLossyWire(a.front[len("http://"):])
	if !a.did(err) {
		return
	}
	r := payFor("order-6", "pay-order-6")
	cut := a.exchange(ctx, r.via(wire.url()))
	lost := false
	select {
	case <-wire.lost:
		lost = true
	default:
	}
	if !a.did(wire.close()) {
		return
	}
	a.note("the gateway had answered; the wire broke before the first byte reached the client")
	a.check(cut.err != nil && lost, "the client got nothing")
	rep := a.exchange(ctx, r.via(a.front))
	a.check(rep.status == http.StatusCreated && rep.replayed(), "the retry gets the answer that was lost")
	a.charges(ctx, "order-6", 1)
}

func impatience(ctx context.Context, a *act) {
	const bank, patience = 1600 * time.Millisecond, 600 * time.Millisecond
	proxy := &impatientProxy{to: a.front, timeout: patience, tries: 2}
	front, err := a.serve(proxy)
	if !a.did(err) {
		return
	}
	naive := &impatientProxy{to: a.service.url, timeout: patience, tries: 2}
	naiveFront, err := a.serve(naive)
	if !a.did(err) {
		return
	}
	var unprotected sync.WaitGroup
	unprotected.Go(func() { payFor("order-7-unprotected", "pay-order-7", takes(bank)).via(naiveFront).send(ctx) })

	r := payFor("order-7", "pay-order-7", takes(bank)).via(front)
	a.request(r, "through the proxy: ")
	var rep reply
	early := false
	for range 6 {
		rep = r.send(ctx)
		for _, hop := range proxy.taken() {
			a.note("the proxy: %s", hop)
		}
		if rep.err != nil || rep.status == http.StatusCreated {
			break
		}
		early = true
		a.saw(rep)
		wait := max(rep.retryAfter(), 100*time.Millisecond)
		a.note("the client gets %d and waits %v", rep.status, wait)
		pause(ctx, wait)
	}
	a.reply(rep)
	a.saw(rep)
	a.check(early, "while it ran, the client was told to come back")
	a.check(rep.status == http.StatusCreated && rep.replayed(), "then it got the answer of the one payment")
	a.charges(ctx, "order-7", 1)

	unprotected.Wait()
	n, err := a.count(ctx, "order-7-unprotected")
	if a.did(err) {
		a.check(n == 2, "the same proxy straight to the service, without the gateway: %s", plural(n, "charge"))
	}
}

func longRun(ctx context.Context, a *act) {
	r := payFor("order-8", "pay-order-8", takes(3*shortLease)).via(a.shortFront)
	a.note("here the lease is %v, and a payment whose owner has died is made again", shortLease)
	a.request(r, "")
	began := time.Now()
	answered := make(chan reply, 1)
	go func() { answered <- r.send(ctx) }()
	if !a.did(until(ctx, func() bool { return a.service.running.Load() > 0 })) {
		return
	}
	first, repeats := a.pester(ctx, r, began, answered)
	if repeats.refused > 0 {
		a.note("the same every 100 ms, while it runs; %d times after the first lease's end:", repeats.late)
		a.several(repeats.refused, a.status(http.StatusConflict)+"   Retry-After: "+repeats.last.header.Get("Retry-After"))
		a.saw(repeats.last)
	}
	a.several(repeats.other, a.red("something else"))
	a.note("the first one, after %v:", time.Since(began).Round(10*time.Millisecond))
	a.reply(first)
	a.saw(first)
	replay := r.send(ctx)
	a.saw(replay)
	a.check(repeats.late > 0 && repeats.other == 0, "no repeat made it again, although the first lease was over")
	a.check(first.status == http.StatusCreated && !first.replayed(), "the first request got its own answer")
	a.check(replay.replayed() && replay.body == first.body, "a later repeat gets the same")
	a.charges(ctx, "order-8", 1)
}

// repeats counts what came of requests that were sent while their operation ran.
type repeats struct {
	refused, other int
	late           int // refused after the first lease would have been over
	last           reply
}

// pester sends a request every 100 ms until its first copy is answered.
func (a *act) pester(ctx context.Context, r request, began time.Time, answered <-chan reply) (reply, repeats) {
	var n repeats
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case first := <-answered:
			return first, n
		case <-tick.C:
		}
		again := r.send(ctx)
		switch {
		case again.status == http.StatusConflict && again.code() == "IDEMPOTENCY_IN_PROGRESS":
			n.refused++
			n.last = again
			if time.Since(began) > shortLease {
				n.late++
			}
		case again.replayed() && again.status == http.StatusCreated: // it has just ended
		default:
			n.other++
		}
	}
}

func outage(ctx context.Context, a *act) {
	if !a.did(a.service.stop()) {
		return
	}
	// Until the gateway has seen its old connections end; a request on one of them might have been sent.
	a.did(until(ctx, func() bool { return status(ctx, a.front+"/payments") >= 500 }))
	r := payFor("order-9", "pay-order-9").via(a.front)
	down := a.exchange(ctx, r)
	a.check(down.status == http.StatusServiceUnavailable && down.code() == "UPSTREAM_UNAVAILABLE" && down.retryAfter() > 0,
		"503: nothing was run, and the same key may be sent again")
	if !a.did(a.service.start()) {
		return
	}
	a.note("the service is up again")
	rep := a.exchange(ctx, r)
	a.check(rep.status == http.StatusCreated && !rep.replayed(), "the same key makes the payment now")
	a.charges(ctx, "order-9", 1)
}

// status is that of a GET, or 0 if it got no answer.
func status(ctx context.Context, address string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0
	}
	return receive(plainTransport.RoundTrip(req)).status
}
