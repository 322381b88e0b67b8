package harness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestBrowserPages drives what is not a run or a log, over the gallery: filters, search, keys, forms, and every page without
// scripts and on a narrow screen. Cancel and Re-run are buttons of TestBrowserDashboard, whose server is a real one: where the
// clock stands still nothing that waits for it is written.
func TestBrowserPages(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	chromium(t)
	g := openGallery(t)
	b := newBrowserAt(t, "http://"+g.addr)
	b.open("/login/link/x")
	b.see("the first page", "location.pathname === '/runs'")
	b.filters()
	b.keys(g)
	b.startForm(g)
	b.replays(g)
	b.narrow(g)
	b.quiet()
	b.bare(g)
	b.signedOut(g)
}

const ready = "document.readyState === 'complete' && "

func (b *browser) filters() {
	b.t.Helper()
	b.screen(1280, "light")
	b.open("/runs")
	b.patiently(chromedp.Click("//a[text()='Failed']"))
	b.see("the failed run alone", ready+"location.search === '?status=failed' && document.querySelectorAll('tbody tr').length === 1")
	b.click(".filters summary")
	eval[any](b, "document.querySelector('.filters [name=branch]').value = 'nowhere'")
	b.click(".filters .btn")
	b.see("that both filters hold", ready+"new URLSearchParams(location.search).get('status') === 'failed' && document.body.innerText.includes('No run matches')")
	b.patiently(chromedp.Click("//a[contains(@class,'chip')]"))
	b.see("the failed run again", ready+"location.search === '?status=failed' && document.querySelectorAll('tbody tr').length === 1")
	eval[any](b, "document.querySelector('header input[type=search]').value = 'lock screen'; document.querySelector('header form.search').requestSubmit()")
	b.see("what was searched for", ready+"location.search === '?q=lock+screen' && document.querySelectorAll('tbody tr').length === 1 && document.body.innerText.includes('Widget for the lock screen')")
	b.open("/deliveries")
	eval[any](b, "document.querySelector('[name=source]').value = 'models'")
	b.click(".fields .btn")
	b.see("the deliveries of one source", ready+"document.querySelectorAll('tbody tr').length === 1")
}

// press sends keys to the page as a person does who has not clicked anywhere.
func (b *browser) press(keys string) {
	b.t.Helper()
	for _, k := range strings.Fields(keys) {
		eval[any](b, fmt.Sprintf("(document.activeElement ?? document.body).dispatchEvent(new KeyboardEvent('keydown', {key: %q, bubbles: true, cancelable: true}))", k))
	}
}

func (b *browser) keys(g gallery) {
	b.t.Helper()
	for keys, path := range map[string]string{"g q": "/queue", "g a": "/agents", "g s": "/scalers", "g o": "/sources", "g d": "/deliveries", "g n": "/start", "g e": "/events", "g w": "/workflows", "g c": "/schedules", "g i": "/instances", "g p": "/settings", "g l": "/access-log", "g r": "/runs"} {
		b.open("/runs?q=x")
		b.see("the scripts", ready+"!!window.htmx")
		b.press(keys)
		b.see("where "+keys+" goes", fmt.Sprintf(ready+"location.pathname === %q && location.search === ''", path))
	}
	b.open("/runs")
	b.see("the scripts", ready+"!!window.htmx")
	b.press("/")
	b.see("the focus in the search box", "document.activeElement.matches('input[type=search]')")
	b.press("Escape j j j k")
	b.see("the second row chosen, and its link in focus", "(r => r?.rowIndex === 2 && r.contains(document.activeElement))(document.querySelector('tr[aria-selected=true]'))")
	if w := eval[string](b, "getComputedStyle(document.querySelector('tr[aria-selected=true]').cells[0]).backgroundColor"); w == eval[string](b, "getComputedStyle(document.querySelector('tbody tr').cells[0]).backgroundColor") {
		b.t.Error("the chosen row looks like the others")
	}
	b.press("?")
	b.see("the keys", "document.querySelector('#keys').open && document.querySelector('#keys').innerText.includes('start a workflow')")
	b.press("j g q")
	b.see("that no key is taken while they are shown", "document.querySelector('#keys').open && location.pathname === '/runs'")
	b.click("#keys .btn")
	b.see("that they are gone", "!document.querySelector('#keys').open")
	path := eval[string](b, "document.querySelector('tr[aria-selected=true]').dataset.href")
	eval[any](b, "document.querySelector('tr[aria-selected=true] a').focus(); document.activeElement.click()")
	b.see("the run behind the row", fmt.Sprintf("location.pathname === %q", path))
	b.open(g.pages["queue"])
	b.see("marks for assistive software", ready+`['header', 'nav[aria-label]', 'main#main', 'nav [aria-current=page]', '.skip'].every((s) => document.querySelector(s)) && [...document.querySelectorAll('th')].every((h) => h.scope)`)
}

func (b *browser) startForm(g gallery) {
	b.t.Helper()
	b.open("/start")
	b.see("the first step", ready+"!!document.querySelector('select[name=source]')")
	eval[any](b, "document.querySelector('select[name=source]').value = 'shop'")
	b.click(".fields .btn")
	b.see("the workflows", ready+"!!document.querySelector('.choose')")
	b.patiently(chromedp.Click("//ul[contains(@class,'choose')]//a[text()='deploy']"))
	b.see("the inputs", ready+"!!document.querySelector('[name=\"in.instances\"]')")
	eval[any](b, "document.querySelector('[name=\"in.instances\"]').value = '99'")
	b.click("form[method=post] .primary")
	b.see("what is wrong, beside two fields", ready+"document.querySelectorAll('.input.bad').length === 2 && document.body.innerText.includes('must be at most 20')")
	eval[any](b, "document.querySelector('[name=\"in.instances\"]').value = '7'; document.querySelector('[name=\"in.environment\"]').value = 'staging'; document.querySelector('[name=\"in.dry-run\"]').checked = false")
	b.click("form[method=post] .primary")
	b.see("the run", ready+fmt.Sprintf("location.pathname === %q", g.pages["run"]))
	if got := g.in.noted(); !slices.Contains(got, "start deploy of shop: map[dry-run:false environment:staging instances:7]") {
		b.t.Errorf("started: %q", got)
	}
	b.mu.Lock() // a form that has to be mended is a 400, of which the console tells
	b.complains = slices.DeleteFunc(b.complains, func(c string) bool { return strings.Contains(c, "400 (Bad Request)") })
	b.mu.Unlock()
}

func (b *browser) replays(g gallery) {
	b.t.Helper()
	b.open(g.pages["failed delivery"])
	b.see("the page", ready+"(window.same = true)")
	b.patiently(chromedp.Click("//button[text()='Replay']"))
	b.see("the delivery again", ready+fmt.Sprintf("!window.same && location.pathname === %q", g.pages["failed delivery"]))
	if got := g.in.noted(); !slices.Contains(got, "replay "+strings.TrimPrefix(g.pages["failed delivery"], "/deliveries/")) {
		b.t.Errorf("replayed: %q", got)
	}
}

func (b *browser) narrow(g gallery) {
	b.t.Helper()
	for _, width := range []int64{320, 400, 1280} {
		b.screen(width, "dark")
		for _, name := range slices.Sorted(maps.Keys(g.pages)) {
			b.open(g.pages[name])
			b.see("the page "+name, ready+"!!document.querySelector('main h1')")
			if over := eval[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				b.t.Errorf("%s is %v px too wide for %d px", name, over, width)
			}
		}
	}
	b.screen(1280, "light")
}

// bare reads every page as a browser that runs no scripts.
func (b *browser) bare(g gallery) {
	b.t.Helper()
	set := func(off bool) {
		if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off}); err != nil {
			b.t.Fatal(err)
		}
	}
	set(true)
	defer set(false)
	for name, want := range map[string]string{
		"runs": "Cache the price table per region", "run": "image", "job": "TestRegionFallback", "queue": "No scaler or agent offers macos-15", "agents": "scaler-firecracker-",
		"scalers": "nvidia-smi: no devices", "sources": "acme/models", "source": "kici source webhook-secret shop", "deliveries": "push", "delivery": "Its paths are docs/**",
		"failed delivery": "connection refused", "start": "Goes into the announcement",
		"timeline": "began to work on it", "events": "not trusted by those that wait", "event": "It started deploy of acme/shop", "dead letters": "must be at most 20", "workflows": "licences",
		"workflow": "cannot fire", "schedules": "America/New_York", "held run": "Held back by the concurrency group production", "instances": "gpu-1", "periodic jobs": "permission denied",
		"cluster settings": "30 days", "settings": "queueTimeoutMs", "tokens": "shop's bot", "organisations": "acme-labs", "access log": "lacks permission run.cancel",
	} {
		b.open(g.pages[name])
		text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("main")))
		if err != nil {
			b.t.Fatal(err)
		}
		if !strings.Contains(text, want) {
			b.t.Errorf("without scripts %s lacks %q:\n%s", name, want, text)
		}
	}
}

// signedOut shuts the door while a page is open: its stream is refused the next time, and the page says so.
func (b *browser) signedOut(g gallery) {
	b.t.Helper()
	b.open("/runs?q=price")
	b.see("the scripts", ready+"!!window.htmx && document.querySelector('#out').hidden")
	g.door.shut.Store(true)
	eval[any](b, "dispatchEvent(new Event('pagehide')); dispatchEvent(new Event('pageshow'))")
	b.see("that the page says it is signed out", "!document.querySelector('#out').hidden && document.querySelector('#cut').hidden")
	if to := eval[string](b, "document.querySelector('#out a').getAttribute('href')"); to != "/login?next=%2Fruns%3Fq%3Dprice" {
		b.t.Errorf("signing in again goes to %s", to)
	}
}
