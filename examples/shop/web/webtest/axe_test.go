package webtest

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/semelhq/semel/internal/npm"
	"github.com/semelhq/semel/internal/proof"
)

//go:embed testdata/axe
var packages embed.FS

// axe-core knows the rules of WCAG that a program can check. In the short form it looks at the page in two of its four
// looks, by chance.
func TestThePageCanBeUsedByAll(t *testing.T) {
	modules := filepath.Join(t.TempDir(), "axe")
	must(t, npm.Install(packages, "testdata/axe", modules))
	axe, err := os.ReadFile(filepath.Join(modules, "node_modules/axe-core/axe.min.js"))
	must(t, err)
	type look struct {
		scheme string
		width  int64
	}
	for _, l := range proof.Some(2, look{"light", 1280}, look{"light", 390}, look{"dark", 1280}, look{"dark", 390}) {
		t.Run(fmt.Sprint(l.scheme, " ", l.width), func(t *testing.T) {
			p := openPage(t)
			p.look(l.scheme, l.width, 760)
			name := l.scheme
			if l.width != 1280 {
				name += fmt.Sprint("-", l.width)
			}
			p.do(chromedp.Evaluate[chromedp.Void](string(axe) + "; void 0"))
			p.violatesNothing("idle")
			p.shoot(name + "-before")
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("[value=tok_declined]").click()`))
			p.do(chromedp.Click("#pay"))
			p.see("declined")
			p.violatesNothing("declined")
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("[value=tok_visa]").click()`))
			arrived, release := p.shop.hold(t)
			p.shop.loseAnswer(t)
			p.do(chromedp.Click("#pay"))
			await(t, arrived)
			p.violatesNothing("paying")
			release()
			p.paid(1)
			p.violatesNothing("paid")
			p.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()"))
			p.poll(`document.querySelector(".state.succeeded") !== null`)
			p.shoot(name)
		})
	}
}

// violatesNothing lets axe-core look at the page, and checks that nothing of it is cut off at the side.
func (p *page) violatesNothing(phase string) {
	p.t.Helper()
	found := evaluate[string](p, `axe.run().then(({ violations }) => violations.map(({ id, impact, nodes }) =>
		[impact, id, ...nodes.map(({ html, failureSummary }) => html + " " + failureSummary)].join("\n\t")).join("\n"))`)
	if found != "" {
		p.t.Errorf("%s: %s", phase, found)
	}
	if wide := evaluate[float64](p, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		p.t.Errorf("%s: the page is %v pixels wider than the window", phase, wide)
	}
}
