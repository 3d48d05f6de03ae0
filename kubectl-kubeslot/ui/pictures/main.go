// Command pictures takes the pictures of docs/ui.md from a page that is running:
//
//	kubectl kubeslot ui | head -n 1     # prints the address, in another terminal
//	go run ./kubectl-kubeslot/ui/pictures -o docs/pictures ADDRESS
//
// It needs Chromium. Those of details show the first slot that is held and the first pod
// that waits.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is how long all pictures together may take.
const patience = 2 * time.Minute

// shot is a picture, and what is done before it.
type shot struct {
	name          string
	width, height int64
	scheme        string
	click         string // what is clicked first
	awaits        string // what is visible then
}

var shots = []shot{
	{"ui-light", 1440, 900, "light", "", ".device"},
	{"ui-dark", 1440, 900, "dark", "", ".device"},
	{"ui-slot", 1440, 900, "light", "#grid .slot.held", ".drawer .spans"},
	{"ui-waiting", 1440, 900, "light", "#waiting .pill.pending", ".drawer .wait"},
	{"ui-narrow", 390, 844, "dark", "", ".device"},
}

func main() {
	out := flag.String("o", "docs/pictures", "directory for the pictures")
	only := flag.String("only", "", "take this picture alone")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: pictures [-o FOLDER] ADDRESS\n\nADDRESS is what `kubectl kubeslot ui` prints.")
		os.Exit(2)
	}
	if err := run(*out, *only, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(out, only, address string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		return fmt.Errorf("start Chromium (apt-get install chromium): %w", err)
	}
	limited, done := context.WithTimeout(ctx, patience)
	defer done()
	for _, s := range shots {
		if only != "" && s.name != only {
			continue
		}
		if err := s.take(limited, out, address); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (s *shot) take(ctx context.Context, out, address string) error {
	steps := []chromedp.Action[chromedp.Void]{chromedp.Navigate("about:blank"), scheme(s.scheme), chromedp.EmulateViewport(s.width, s.height), chromedp.Navigate(address),
		chromedp.WaitVisible(chromedp.CSS("body.ready .device"))}
	if s.click != "" {
		steps = append(steps, chromedp.Click(chromedp.CSS(s.click), chromedp.NodeVisible))
	}
	steps = append(steps, chromedp.WaitVisible(chromedp.CSS(s.awaits)), still)
	if err := chromedp.Do(ctx, steps...); err != nil {
		return err
	}
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, s.name+".png"), png, 0o644)
}

// scheme has the page believe that the system is light or dark, and moves nothing.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	})
}

// still takes the pointer and the focus off, and lets two frames pass.
var still = chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
	if _, err := chromedp.MouseEvent("mouseMoved", 1, 1)(ctx, t); err != nil {
		return err
	}
	_, err := chromedp.Evaluate[bool]("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))", chromedp.EvalAwaitPromise)(ctx, t)
	return err
})
