package harness

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// browser is a real Chromium that looks at a world's dashboard, and remembers everything that it complained about.
type browser struct {
	t    *testing.T
	w    *world // nil when what it looks at is no real server
	base string // address without a path
	ctx  context.Context

	mu        sync.Mutex
	cutOff    bool // the server is away on purpose: failed requests are no complaint
	complains []string
}

// chromium finds the browser.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require(t, "chromium", "no chromium, chromium-browser or google-chrome is installed")
	return ""
}

func newBrowser(t *testing.T, w *world) *browser {
	t.Helper()
	b := newBrowserAt(t, w.url(""))
	b.w = w
	return b
}

func newBrowserAt(t *testing.T, base string) *browser {
	t.Helper()
	opts := slices.Clone(chromedp.DefaultExecAllocatorOptions[:])
	opts = append(opts, chromedp.ExecPath(chromium(t)))
	for _, f := range []string{"no-sandbox", "disable-gpu", "disable-quic", "disable-component-update", "hide-scrollbars"} {
		opts = append(opts, chromedp.Flag(f, true))
	}
	ctx, cancel := chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(opts...))
	t.Cleanup(cancel)
	b := &browser{t: t, base: base, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	messages, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.complain(m)
		}
	}()
	go func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			if u := r.Request.URL; !strings.HasPrefix(u, base+"/") && u != "about:blank" {
				b.note("a request to another place: " + u)
			}
		}
	}()
	return b
}

// complain keeps what a console shows in red or yellow: exceptions, failed requests, violations of the content security policy.
func (b *browser) complain(m chromedp.ConsoleMessage) {
	b.mu.Lock()
	away := b.cutOff && m.Source == "network"
	b.mu.Unlock()
	if away || m.Type == "log" || m.Type == "info" || m.Type == "debug" || m.Type == "verbose" {
		return
	}
	b.note(m.String() + " " + m.URL)
}

func (b *browser) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complains = append(b.complains, what)
}

// quiet fails the test for what the browser has complained about so far.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complains {
		b.t.Error("the browser complains: " + c)
	}
	b.complains = nil
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("browser: %v\n%s", err, b.log())
	}
}

// open shows a path of the dashboard.
func (b *browser) open(path string) { b.t.Helper(); b.do(chromedp.Navigate(b.base + path)) }

func (b *browser) click(css string) { b.t.Helper(); b.patiently(chromedp.Click(chromedp.CSS(css))) }

// patiently does an action on an element of a page that may be drawn again meanwhile: the browser then loses the element, not the page.
func (b *browser) patiently(click chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := chromedp.Do(b.ctx, click)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "find node") || time.Now().After(end) {
			b.t.Fatalf("browser: %v\n%s", err, b.log())
		}
	}
}

// eval is the value of a script on the page.
func eval[T any](b *browser, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// see waits until a script is true on the page as it is: nothing is loaded again.
func (b *browser) see(what, script string) {
	b.t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](script)); err == nil && ok {
			return
		} else if time.Now().After(end) {
			b.t.Fatalf("the browser never saw %s (%s; last error %v)\n%s\n%s", what, script, err, eval[string](b, "document.body.innerText"), b.log())
		}
	}
}

// status waits for the word that stands below the heading of a run's page.
func (b *browser) status(word string) {
	b.t.Helper()
	b.see("status "+word, fmt.Sprintf("document.querySelector('#run-head .meta .st')?.textContent === %q", word))
}

func (b *browser) screen(width int64, scheme string) {
	b.t.Helper()
	b.screenOf(width, 900, scheme)
}

func (b *browser) screenOf(width, height int64, scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	})
	if err == nil {
		_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// log is what the server has logged.
func (b *browser) log() string {
	if b.w == nil {
		return ""
	}
	return b.w.log.String()
}

// freeze stops the clock of every page that is opened from now on.
func (b *browser) freeze(at time.Time) {
	b.t.Helper()
	script := fmt.Sprintf("Date.now = () => %d", at.UnixMilli())
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		b.t.Fatal(err)
	}
}

// signIn opens a one-time link that goes on to a path.
func (b *browser) signIn(path string) {
	b.t.Helper()
	link, err := b.w.api.LoginLink(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.do(chromedp.Navigate(link.URL + "?next=" + url.QueryEscape(path)))
	b.see("the page behind the link", fmt.Sprintf("location.pathname === %q && document.readyState === 'complete'", path))
}
