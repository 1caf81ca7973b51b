package jstest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/semelhq/semel/internal/npm"
	"github.com/semelhq/semel/internal/proof"
)

// patience is how long anything may take: a protection from waiting for ever, not an expectation.
const patience = 60 * time.Second

// The ledger of the service judges what real clicks, reloads and cables come to. In the short form four scenes
// are played, by chance.
func TestR65_OneChargeWhateverHappensToThePage(t *testing.T) {
	t.Parallel()
	s, b := openShop(t), browser(t)

	// One after the other: only the tab in front gets clicks.
	for _, one := range proof.Some(4,
		scene{"double click", func(t *testing.T) {
			arrived, release := s.hold(t, "double")
			p := open(t, b, s, "double")
			p.do(chromedp.Click("#pay"), chromedp.Click("#pay"))
			await(t, arrived, "the payment")
			p.do(chromedp.Evaluate[chromedp.Void]("payFromElsewhere()"))
			release()
			p.paid(3)
		}},
		scene{"reload in the middle", func(t *testing.T) {
			arrived, release := s.hold(t, "reload")
			p := open(t, b, s, "reload")
			p.do(chromedp.Click("#pay"))
			await(t, arrived, "the payment")
			p.do(chromedp.Reload())
			p.see("resumed")
			release()
			p.paid(1)
		}},
		scene{"the tab is duplicated in the middle", func(t *testing.T) {
			arrived, release := s.hold(t, "twins")
			p := open(t, b, s, "twins")
			p.do(chromedp.Click("#pay"))
			await(t, arrived, "the payment")
			p.do(chromedp.Evaluate[chromedp.Void]("void (twin = open(location.href))")) // and the same storage
			p.do(poll(`twin?.document?.getElementById("state")?.textContent === "resumed"`))
			release()
			p.do(poll(`twin.document.getElementById("state").textContent === "done"`))
			p.paid(1)
			other, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](
				`twin.document.querySelector("#answers li").textContent`))
			if want := "201 " + s.charge("twins"); other != want || err != nil {
				t.Errorf("the other tab has %q, %v, want %q", other, err, want)
			}
		}},
		scene{"two tabs at once", func(t *testing.T) {
			p := open(t, b, s, "tabs")
			p.do(chromedp.Evaluate[chromedp.Void]("void (twin = open(location.href))"))
			p.do(poll(`twin?.document?.getElementById("state")?.textContent === "ready"`))
			p.do(chromedp.Evaluate[chromedp.Void](`void (async () => {
				globalThis.rounds = [];
				for (let n = 1; n <= 20; n++) rounds.push(await Promise.all([payAs("tabs-" + n), twin.payAs("tabs-" + n)]));
			})()`))
			p.do(poll("rounds.length === 20"))
			got, err := chromedp.Run(p.ctx, chromedp.Evaluate[[][]string]("rounds"))
			if err != nil {
				t.Fatal(err)
			}
			for n, answers := range got {
				order := fmt.Sprintf("tabs-%d", n+1)
				if charges := s.charges(order); charges != 1 || answers[0] != s.charge(order) || answers[1] != answers[0] {
					t.Errorf("round %d: %d charges, answers %q; want one of each", n+1, charges, answers)
				}
			}
			left, err := chromedp.Run(p.ctx, chromedp.Evaluate[int]("localStorage.length"))
			if left != 0 || err != nil {
				t.Errorf("%d keys are left, %v", left, err)
			}
		}},
		scene{"a login is asked for after a lost answer", func(t *testing.T) {
			arrived, release := s.hold(t, "login")
			p := open(t, b, s, "login")
			p.do(chromedp.Click("#pay"))
			await(t, arrived, "the payment")
			s.loggedOut.Store(true)
			s.cut()
			p.see("open")
			release()
			s.loggedOut.Store(false)
			p.do(chromedp.Click("#pay"))
			p.see("done")
			line, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](
				`document.querySelector("#answers li:last-child").textContent`))
			if n := s.charges("login"); n != 1 || line != "201 "+s.charge("login") || err != nil {
				t.Errorf("%d charges, answer %q, %v; want one", n, line, err)
			}
		}},
		scene{"away and back in the middle", func(t *testing.T) {
			arrived, release := s.hold(t, "back")
			p := open(t, b, s, "opener")
			p.do(chromedp.Evaluate[chromedp.Void](`void (twin = open("/checkout?order=back"))`))
			p.do(poll(`twin?.document?.getElementById("state")?.textContent === "ready"`))
			p.do(chromedp.Evaluate[chromedp.Void](`twin.document.getElementById("pay").click()`))
			await(t, arrived, "the payment")
			p.do(chromedp.Evaluate[chromedp.Void](`void (twin.location = "/login")`), poll(`twin.document.title === "Log in"`))
			p.do(chromedp.Evaluate[chromedp.Void]("twin.history.back()"))
			p.do(poll(`["paying", "resumed"].includes(twin.document?.getElementById("state")?.textContent)`))
			release()
			p.do(poll(`twin.document.getElementById("state").textContent === "done"`))
			line, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](
				`twin.document.querySelector("#answers li:last-child").textContent`))
			if n := s.charges("back"); n != 1 || line != "201 "+s.charge("back") || err != nil {
				t.Errorf("%d charges, answer %q, %v; want one", n, line, err)
			}
		}},
		scene{"storage is full", func(t *testing.T) {
			arrived, release := s.hold(t, "full")
			p := open(t, b, s, "full")
			p.do(chromedp.Evaluate[chromedp.Void](`(() => {
				for (let size = 1 << 22; size > 0; size >>= 1) {
					try {
						for (let i = 0; ; i++) localStorage.setItem("fill-" + size + "-" + i, "x".repeat(size));
					} catch {}
				}
			})()`))
			p.do(chromedp.Click("#pay"), chromedp.Click("#pay"))
			await(t, arrived, "the payment")
			kept, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`localStorage.getItem("semel:checkout-full") !== null`))
			if kept || err != nil {
				t.Errorf("the key is stored: %v, %v; want no room for it", kept, err)
			}
			p.do(chromedp.Evaluate[chromedp.Void]("localStorage.clear()"))
			release()
			p.paid(2)
		}},
		scene{"offline and back", func(t *testing.T) {
			p := open(t, b, s, "offline")
			p.network(false)
			p.do(chromedp.Click("#pay"))
			p.see("paying")
			p.network(true)
			p.paid(1)
			if got := p.attempts(); !slices.Equal(got, []any{201.0}) {
				t.Errorf("attempts %v, want one: there was no network for another", got)
			}
		}},
		scene{"offline in the middle", func(t *testing.T) {
			arrived, release := s.hold(t, "cut")
			p := open(t, b, s, "cut")
			p.do(chromedp.Click("#pay"))
			await(t, arrived, "the payment")
			p.network(false)
			s.cut()
			p.do(poll("attempts.length > 0"))
			release()
			p.network(true)
			p.paid(1)
			if got := p.attempts(); len(got) < 2 || got[len(got)-1] != 201.0 {
				t.Errorf("attempts %v, want one that was cut, and another", got)
			}
		}},
	) {
		t.Run(one.name, one.play)
	}
}

// browser starts Chromium, which ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, env, err := npm.Chromium(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// The pages are the tests' own. A sandbox is refused to root, and to anybody in many containers.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.Env(env...), chromedp.NoSandbox)
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// A page is a tab with the checkout of an order.
type page struct {
	t     *testing.T
	ctx   context.Context
	shop  *shop
	order string
}

func open(t *testing.T, browser context.Context, s *shop, order string) *page {
	t.Helper()
	p := openAt(t, browser, s, "/checkout?order="+order, order)
	p.see("ready")
	return p
}

// openAt opens a page of the shop.
func openAt(t *testing.T, browser context.Context, s *shop, path, order string) *page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &page{t, ctx, s, order}
	p.do()
	p.network(true)
	p.do(chromedp.Navigate(s.url + path))
	return p
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := p.ctx, context.CancelFunc(func() {})
	if len(actions) > 0 { // without, this makes the tab, which lives as long as the context
		ctx, cancel = context.WithTimeout(p.ctx, patience)
	}
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("order %s: %v", p.order, err)
	}
}

// network plugs the cable in or out. The page is told what it would be told on a machine with one, also on one without.
func (p *page) network(on bool) {
	p.t.Helper()
	var rules []*network.Conditions
	if !on {
		rules = []*network.Conditions{{Offline: true, DownloadThroughput: -1, UploadThroughput: -1}}
	}
	_, err := chromedp.Call(p.ctx, network.EmulateNetworkConditionsByRule,
		network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: rules})
	if err != nil {
		p.t.Fatalf("network %v: %v", on, err)
	}
	_, err = chromedp.Call(p.ctx, network.OverrideNetworkState,
		network.OverrideNetworkStateParams{Offline: !on, Latency: 1, DownloadThroughput: -1, UploadThroughput: -1})
	if err != nil {
		p.t.Fatalf("tell the page of the network %v: %v", on, err)
	}
}

func poll(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(10*time.Millisecond),
		chromedp.WithPollingTimeout(patience))
}

// see waits until the page shows a state.
func (p *page) see(state string) {
	p.t.Helper()
	p.do(poll(fmt.Sprintf(`document.getElementById("state")?.textContent === %q`, state)))
}

// paid waits for so many answers, which must all be the one of the only charge, and for the key to be gone.
func (p *page) paid(answers int) {
	p.t.Helper()
	const lines = `[...document.querySelectorAll("#answers li")].map((line) => line.textContent)`
	p.do(poll(fmt.Sprintf(`(lines => lines.length === %d && lines.every(Boolean))(%s)`, answers, lines)))
	p.see("done")
	got, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](lines))
	if err != nil {
		p.t.Fatal(err)
	}
	if n := p.shop.charges(p.order); n != 1 {
		p.t.Errorf("%d charges, want 1", n)
	}
	want := "201 " + p.shop.charge(p.order)
	if slices.ContainsFunc(got, func(line string) bool { return line != want }) {
		p.t.Errorf("answers %q, want %q only", got, want)
	}
}

// attempts returns what came of each request: its status, or the error.
func (p *page) attempts() []any {
	p.t.Helper()
	got, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]any]("attempts"))
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// A scene is what happens to a page.
type scene struct {
	name string
	play func(t *testing.T)
}
