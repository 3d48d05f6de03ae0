// Package browser has a test use a page in a headless Chromium, as a user does.
package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/kubeslot/kubeslot/test/need"
)

// deadline is how long a condition is waited for.
const deadline = time.Minute

// Tab is a page in a headless browser. Whatever the browser complains of, and each
// request to another host than the page's, fails the test.
type Tab struct {
	testing.TB
	ctx context.Context
}

// chromium returns the browser's program.
func chromium(t testing.TB) string {
	t.Helper()
	return need.Program(t, "apt-get install chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell")
}

// Open opens an address in a browser of its own, of that size in pixels.
func Open(t testing.TB, address string, width, height int64, options ...chromedp.ExecAllocatorOption) *Tab {
	t.Helper()
	temp, err := os.MkdirTemp("", "") // the test's own makes paths that are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) }) // Chromium leaves things in it
	options = append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox,
		chromedp.Env("TMPDIR="+temp)), options...)
	where, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var complaints []string
	listen := func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		complaints = append(complaints, complaintsOf(ev, where)...)
	}
	var ctx context.Context
	for attempt := 1; ctx == nil; attempt++ {
		if ctx, err = start(t, listen, options); err != nil && attempt == maxStarts {
			t.Fatalf("start the browser, %d times: %v", attempt, err)
		}
	}
	b := &Tab{t, ctx}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range complaints {
			t.Errorf("the browser complains: %s", c)
		}
	})
	Call(b, log.Enable, cdp.Empty{})
	Call(b, network.Enable, network.EnableParams{})
	b.Do(chromedp.EmulateViewport(width, height), chromedp.Navigate(address))
	return b
}

// maxStarts is how often a browser is started that ends at once: Chromium's first process
// crashes now and then on a busy machine.
const maxStarts = 3

// start starts a browser, which ends with the test.
func start(t testing.TB, listen func(ev any), options []chromedp.ExecAllocatorOption) (context.Context, error) {
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(listen))
	// The first run starts the browser, which ends with the context that it was given.
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		stop()
		return nil, err
	}
	t.Cleanup(stop)
	t.Cleanup(cancel)
	return ctx, nil
}

// complaintsOf are what is wrong in an event: a JavaScript error, something refused by
// the content security policy, a request to another server than the page's.
func complaintsOf(ev any, where *url.URL) []string {
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		return []string{fmt.Sprintf("%+v", *ev.ExceptionDetails)}
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeWarning {
			return []string{fmt.Sprint("console: ", ev.Args)}
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level == log.EntryLevelError || ev.Entry.Level == log.EntryLevelWarning {
			return []string{ev.Entry.Text}
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(ev.Request.URL); err != nil || u.Host != where.Host {
			return []string{"it asks for " + ev.Request.URL}
		}
	}
	return nil
}

// Do does something in the page, such as chromedp.Reload.
func (b *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, deadline)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("the browser: %v", err)
	}
}

// Call gives the page a command of the DevTools protocol.
func Call[P, R any](b *Tab, command cdp.Command[P, R], params P) R {
	b.Helper()
	answer, err := chromedp.Run(b.ctx, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) })
	if err != nil {
		b.Fatalf("the browser: %s: %v", command.Method, err)
	}
	return answer
}

// Eval returns what a JavaScript expression yields.
func Eval[T any](b *Tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, deadline)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("the browser: %s: %v", expression, err)
	}
	return value
}

// Await waits until the text of what a selector finds has all the parts.
func (b *Tab) Await(selector string, parts ...string) {
	b.Helper()
	b.AwaitText(fmt.Sprintf("[...document.querySelectorAll(%q)].map(e => e.innerText.replace(/\\s+/g, ' ') + ' ' + (e.getAttribute('aria-label') || '')).join('\\n')", selector), parts...)
}

// AwaitText waits until an expression yields a text that has all the parts.
func (b *Tab) AwaitText(expression string, parts ...string) {
	b.Helper()
	var text string
	for end := time.Now().Add(deadline); ; {
		text = Eval[string](b, expression)
		missing := ""
		for _, part := range parts {
			if !strings.Contains(text, part) {
				missing = part
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			b.Picture("failed")
			b.Fatalf("waited for %q in %s, which is\n%s", missing, expression, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// AwaitTrue waits until an expression is true.
func (b *Tab) AwaitTrue(expression string) {
	b.Helper()
	b.AwaitText("String(!!("+expression+"))", "true")
}

// Click clicks what a selector finds, as a user does: it has to be visible.
func (b *Tab) Click(selector string) {
	b.Helper()
	b.Do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Press presses a key where the focus is.
func (b *Tab) Press(keys ...string) {
	b.Helper()
	for _, key := range keys {
		b.Do(chromedp.KeyEvent(key))
	}
}

// Picture keeps a picture of the screen when KUBESLOT_PICTURES names a folder.
func (b *Tab) Picture(name string) {
	folder := os.Getenv("KUBESLOT_PICTURES")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, strings.ReplaceAll(b.Name(), "/", "-")+"-"+name+".png"), png, 0o644); err != nil {
		b.Fatal(err)
	}
}

// Focus puts the focus on what a selector finds.
func (b *Tab) Focus(selector string) {
	b.Helper()
	b.Do(chromedp.Focus(chromedp.CSS(selector)))
}

// Search writes a text into the page's search field.
func (b *Tab) Search(text string) {
	b.Helper()
	Eval[bool](b, fmt.Sprintf("search.value = %q; search.dispatchEvent(new Event('input'))", text))
}
