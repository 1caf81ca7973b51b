package webtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A page is a tab with the checkout.
type page struct {
	t    *testing.T
	ctx  context.Context
	shop *shop
}

// openPage opens the checkout of a shop of its own, which anybody may use.
func openPage(t *testing.T) *page {
	t.Helper()
	p := openShop(t, true).page()
	p.see("idle")
	return p
}

// page opens one more tab.
func (s *shop) page() *page {
	s.t.Helper()
	ctx, cancel := chromedp.NewContext(browser(s.t))
	s.t.Cleanup(cancel)
	p := &page{s.t, ctx, s}
	p.do() // makes the tab
	p.network(true)
	messages := chromedp.Console(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for m, err := range messages {
			if err != nil {
				return // the tab is closed
			}
			if m.IsException() || m.Source == "security" || m.Source == "violation" {
				s.t.Errorf("the page's console: %s: %s", m.Type, m.Text)
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); <-ended })
	p.do(chromedp.Navigate(s.url + "/"))
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
		var shown string
		if len(actions) > 0 {
			shown, _ = chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body.dataset.phase + "\n" + document.body.innerText`))
		}
		p.t.Fatalf("%v; the page shows:\n%s", err, shown)
	}
}

func evaluate[T any](p *page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	must(p.t, err)
	return v
}

// gone is in the errors of what was asked of a document that is no longer there.
const gone = "(-32000)"

// poll waits until an expression is true, in this document or in the one that follows it.
func (p *page) poll(expression string) {
	p.t.Helper()
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(10*time.Millisecond), chromedp.WithPollingTimeout(patience))
	p.do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		for {
			v, err := poll(ctx, t)
			if err == nil || !strings.Contains(err.Error(), gone) || ctx.Err() != nil {
				return v, err
			}
		}
	})
}

// see waits until the page is in a phase.
func (p *page) see(phase string) {
	p.t.Helper()
	p.poll(fmt.Sprintf(`document.body?.dataset.phase === %q`, phase))
}

// paid waits for the receipt, and for what the page says was charged for the order, which is once. The ledger has so
// many charges in all.
func (p *page) paid(charges int) {
	p.t.Helper()
	p.see("paid")
	p.charged(charges)
	p.poll(`document.getElementById("verdict").textContent.startsWith("1 charge ")`)
}

// charged checks how many charges the ledger has.
func (p *page) charged(want int) {
	p.t.Helper()
	if got := p.shop.charges(); len(got) != want {
		text, _ := json.Marshal(got)
		p.t.Fatalf("%d charges, want %d: %s", len(got), want, text)
	}
}

// tabTo presses the tabulator until an element with that id or name has the focus.
func (p *page) tabTo(name string) {
	p.t.Helper()
	for range 20 {
		p.do(chromedp.KeyEvent(kb.Tab))
		if got := evaluate[string](p, `[document.activeElement.id, document.activeElement.name].join(" ")`); slices.Contains(strings.Fields(got), name) {
			return
		}
	}
	p.t.Fatalf("the tabulator does not lead to %s", name)
}

// network plugs the cable in or out.
func (p *page) network(on bool) {
	p.t.Helper()
	var rules []*network.Conditions
	if !on {
		rules = []*network.Conditions{{Offline: true, DownloadThroughput: -1, UploadThroughput: -1}}
	}
	_, err := chromedp.Call(p.ctx, network.EmulateNetworkConditionsByRule,
		network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: rules})
	must(p.t, err)
	_, err = chromedp.Call(p.ctx, network.OverrideNetworkState,
		network.OverrideNetworkStateParams{Offline: !on, Latency: 1, DownloadThroughput: -1, UploadThroughput: -1})
	must(p.t, err)
}

// look has the page look so.
func (p *page) look(scheme string, width, height int64) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	must(p.t, err)
	p.do(chromedp.EmulateViewport(width, height))
}
