package webtest

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"

	"github.com/chromedp/chromedp"
)

// shoot writes what the page looks like into the folder that SHOP_SCREENSHOTS names, if it does, packed as well as PNG
// can.
func (p *page) shoot(name string) {
	p.t.Helper()
	folder := os.Getenv("SHOP_SCREENSHOTS")
	if folder == "" {
		return
	}
	shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	must(p.t, err)
	picture, err := png.Decode(bytes.NewReader(shot))
	must(p.t, err)
	var packed bytes.Buffer
	must(p.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&packed, picture))
	must(p.t, os.WriteFile(filepath.Join(folder, "checkout-"+name+".png"), packed.Bytes(), 0o644))
}
