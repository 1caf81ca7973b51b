package webtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/semelhq/semel/internal/npm"
)

// All tests share a browser, one after the other: only the tab in front gets clicks. Each has a shop of its own, and so
// an origin.
func TestMain(m *testing.M) {
	code := m.Run()
	closeBrowser()
	os.Exit(code)
}

var (
	closeBrowser = func() {}
	chromium     = sync.OnceValues(func() (context.Context, error) {
		folder, err := os.MkdirTemp("", "chromium-*")
		if err != nil {
			return nil, err
		}
		path, env, err := npm.Chromium(folder)
		if err != nil {
			return nil, err
		}
		// The pages are the tests' own. A sandbox is refused to root, and to anybody in many containers.
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(folder),
			chromedp.Env(env...), chromedp.NoSandbox)
		ctx, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, cancel := chromedp.NewContext(ctx)
		closeBrowser = func() {
			cancel()
			cancelAllocator()
			os.RemoveAll(folder) //nolint:errcheck // it is a temporary folder
		}
		if err := chromedp.Do(ctx); err != nil {
			closeBrowser()
			return nil, fmt.Errorf("start %s: %w", path, err)
		}
		return ctx, nil
	})
)

func browser(t *testing.T) context.Context {
	t.Helper()
	ctx, err := chromium()
	must(t, err)
	return ctx
}
