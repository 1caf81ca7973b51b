package webtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/semelhq/semel/internal/proof"
)

// patience is how long anything may take: a protection from waiting for ever, not an expectation.
const patience = 60 * time.Second

// What real clicks, cables, reloads and tabs come to, the card processor's ledger says. In the short form
// four scenes are played, by chance.
func TestR65_ThePageChargesOnceWhateverHappensToIt(t *testing.T) {
	for _, one := range proof.Some(4,
		scene{"a payment", func(t *testing.T) {
			p := openPage(t)
			p.do(chromedp.Click("#pay"))
			p.paid(1)
			p.poll(`document.activeElement.id === "receipt-title"`)
			p.do(chromedp.Reload())
			p.paid(1)
			p.do(chromedp.Click("#again"), chromedp.Click("#pay"))
			p.paid(2)
		}},
		scene{"with the keyboard alone", func(t *testing.T) {
			p := openPage(t)
			p.tabTo("product")
			p.do(chromedp.KeyEvent(kb.ArrowRight))
			p.tabTo("quantity")
			p.do(chromedp.KeyEvent(kb.ArrowUp))
			p.tabTo("pay")
			p.do(chromedp.KeyEvent(kb.Enter))
			p.paid(1)
			if e := p.shop.cards.Ledger()[0]; e.Amount != 2*1290 {
				t.Errorf("%d were charged, want two mugs", e.Amount)
			}
		}},
		scene{"a declined card", func(t *testing.T) {
			p := openPage(t)
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("[value=tok_declined]").click()`))
			p.do(chromedp.Click("#pay"))
			p.see("declined")
			p.poll(`document.getElementById("alert").textContent.includes("Nothing was charged")`)
			p.charged(0)
			p.poll(`document.getElementById("verdict").textContent.startsWith("No charge")`)
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("[value=tok_visa]").click()`), chromedp.Click("#pay"))
			p.paid(1)
		}},
		scene{"a double click", func(t *testing.T) {
			p := openPage(t)
			arrived, release := p.shop.hold(t)
			p.do(chromedp.Click("#pay"), chromedp.Click("#pay"))
			await(t, arrived)
			p.do(chromedp.Click("#pay"))
			release()
			p.paid(1)
		}},
		scene{"a lost answer", func(t *testing.T) {
			p := openPage(t)
			p.shop.loseAnswer(t)
			p.do(chromedp.Click("#pay"))
			p.paid(1)
			p.poll(`document.getElementById("attempts").textContent.includes("the connection broke")`)
			p.poll(`document.getElementById("attempts").textContent.includes("first answer again")`)
		}},
		scene{"offline and back", func(t *testing.T) {
			p := openPage(t)
			p.network(false)
			p.do(chromedp.Click("#pay"))
			p.see("paying")
			p.network(true)
			p.paid(1)
		}},
		scene{"a reload in the middle", func(t *testing.T) {
			p := openPage(t)
			arrived, release := p.shop.hold(t)
			p.do(chromedp.Click("#pay"))
			await(t, arrived)
			p.do(chromedp.Reload())
			p.see("paying")
			release()
			p.paid(1)
		}},
		scene{"a tab that is opened in the middle", func(t *testing.T) {
			p := openPage(t)
			arrived, release := p.shop.hold(t)
			p.do(chromedp.Click("#pay"))
			await(t, arrived)
			other := p.shop.page()
			other.see("paying")
			release()
			p.paid(1)
			other.paid(1)
		}},
		scene{"two tabs at once", func(t *testing.T) {
			rounds := 4
			if proof.Long() {
				rounds = 40
			}
			p := openPage(t)
			other := p.shop.page()
			other.see("idle")
			for n := range rounds {
				both := [2]*page{p, other}
				clicked := make(chan error, len(both))
				for _, tab := range both {
					go func() {
						clicked <- chromedp.Do(tab.ctx, chromedp.Evaluate[chromedp.Void](`document.getElementById("pay").click()`))
					}()
				}
				for range both {
					must(t, <-clicked)
				}
				p.paid(n + 1)
				other.paid(n + 1)
				p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("again").click()`))
				p.see("idle")
				other.see("idle")
			}
		}},
	) {
		t.Run(one.name, one.play)
	}
}

// The buttons beside the checkout show what a page comes to with semel, and without. In the short form it is one scene,
// by chance.
func TestThePagesScenesChargeOnceWithSemelAndTwiceWithout(t *testing.T) {
	for _, scene := range proof.Some(1, "double", "answer", "slow", "offline", "reload", "tabs") {
		for _, mode := range []string{"semel", "naive"} {
			t.Run(scene+" "+mode, func(t *testing.T) {
				p := openPage(t)
				p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector("[value=%s]").click()`, mode)))
				p.do(chromedp.Click(fmt.Sprintf("[data-scene=%s]", scene)))
				p.see("paid")
				p.poll(`document.querySelector("[data-scene][aria-disabled=true]") === null`)
				if mode == "semel" {
					p.paid(1)
					return
				}
				p.poll(`document.getElementById("verdict").dataset.times === "many"`)
				if n := len(p.shop.charges()); n < 2 {
					t.Errorf("%d charges, want more than one: the page would show that there is no difference", n)
				}
			})
		}
	}
}

func TestWithoutDevAVisitorBringsAToken(t *testing.T) {
	s := openShop(t, false)
	p := s.page()
	p.see("sign-in")
	token, err := s.keys.Token("acme", "alice", time.Hour)
	must(t, err)
	p.do(chromedp.SendKeys("#token", token), chromedp.Click("#sign-in button"))
	p.see("idle")
	arrived, release := s.hold(t)
	p.do(chromedp.Click("#pay"))
	await(t, arrived)

	// The session has ended when the page comes back to the payment.
	p.do(chromedp.Evaluate[chromedp.Void](`sessionStorage.setItem("shop:token", "expired")`), chromedp.Reload())
	p.see("sign-in")
	p.do(chromedp.SendKeys("#token", token), chromedp.Click("#sign-in button"))
	p.see("paying")
	release()
	p.see("paid")
	p.charged(1)
}

// A scene is what happens to a page.
type scene struct {
	name string
	play func(t *testing.T)
}
