package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/kici-go/kici/client"
)

// What the dashboard has to cope with: a job that writes until it is told to stop, a job that waits for a label that nobody has,
// and names and lines from a hostile repository.
const dashboardWorkflow = `name: slow <b>name</b>
run-name: "<script>alert(1)</script> \u202e a_very_long_word_without_any_space_in_it_that_has_to_be_broken_somewhere_or_the_page_gets_wide"
on: push
jobs:
  write:
    runs-on: linux
    steps:
      - name: "<img src=x onerror=alert(1)>"
        run: |
          echo '::group::a <b>group</b>'
          printf '\033[31mred\033[0m <script>alert(1)</script>\n\033]8;;javascript:alert(1)\033\\link\033]8;;\033\\\n'
          head -c 2000 /dev/zero | tr '\0' x; echo
          echo '::endgroup::'
      - name: Tick
        run: |
          for n in $(seq 1 100000); do
            echo "tick $n"
            if [ -e "%[1]s/burst" ]; then rm "%[1]s/burst"; seq -f 'burst %.0f' 1 100000; fi
            if [ -e "%[1]s/stop" ]; then echo stopped; exit 0; fi
            sleep 0.05
          done
  wait:
    needs: write
    runs-on: [linux, gpu]
    steps: [{run: echo}]
`

// TestBrowserDashboard walks through the dashboard in a real browser, over a server and agents that are real too.
func TestBrowserDashboard(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	chromium(t)
	w := newWorld(t, "", dashboardWorkflow)
	w.start(0)
	shop := w.addShop()
	b := newBrowser(t, w)

	demo := w.pushTo(shop, "demo")
	b.signIn("/runs/" + demo)
	b.followDemo(demo)
	slow := w.pushTo(w.hook, "slow")
	b.followThroughARestart(slow)
	stopped := w.pushTo(w.hook, "cancel")
	b.cancelAndRerun(stopped)
	w.until("the agents of cancelled jobs are gone", 30*time.Second, func() bool { return w.settled() == nil })
	b.everyPage(demo, slow)
	b.withoutScripts(demo)
	b.quiet()
}

// addShop adds the demo's repository as a source of its own.
func (w *world) addShop() client.AddedSource {
	w.t.Helper()
	dir := filepath.Join(w.dir, "shop")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "app", "demo", "shop"))); err != nil {
		w.t.Fatal(err)
	}
	for _, script := range []string{"src/prices.sh", "src/cart.sh", "test/cart.sh"} {
		if err := os.Chmod(filepath.Join(dir, script), 0o755); err != nil { //nolint:gosec // a script
			w.t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=Ada", "commit", "-q", "-m", "Cache the price table per region"}} {
		w.git(append([]string{"-C", dir}, args...)...)
	}
	added, err := w.api.AddSource(w.t.Context(), client.NewSource{Kind: "local", Name: "shop", Path: dir, Repo: "acme/shop"})
	if err != nil {
		w.t.Fatal(err)
	}
	return added
}

// pushTo reports a push of a source's repository and returns the run that it starts.
func (w *world) pushTo(src client.AddedSource, delivery string) (runID string) {
	w.t.Helper()
	was, sha := w.hook, w.sha
	defer func() { w.hook, w.sha = was, sha }()
	if src.Repo == "acme/shop" {
		w.sha = strings.TrimSpace(w.git("-C", filepath.Join(w.dir, "shop"), "rev-parse", "HEAD"))
	}
	w.hook = src
	before := w.newest(src.Repo)
	if code := w.push(delivery); code != 202 {
		w.t.Fatalf("the push was answered with %d\n%s", code, w.log)
	}
	w.until("the run of "+delivery, 20*time.Second, func() bool {
		runID = w.newest(src.Repo)
		return runID != before
	})
	return runID
}

func (w *world) newest(repo string) string {
	w.t.Helper()
	list, err := w.api.Runs(w.t.Context(), client.RunQuery{Repo: repo, Limit: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(list.Runs) == 0 {
		return ""
	}
	return list.Runs[0].ID
}

// followDemo watches the run from beginning to end on one page, then looks at a job and a step.
func (b *browser) followDemo(run string) {
	b.t.Helper()
	eval[bool](b, "window.same = true")
	b.status("success")
	b.see("six finished jobs", "document.querySelectorAll('a.job').length === 6 && !document.querySelector('a.job .running, a.job .queued, a.job .pending')")
	b.see("the button that runs it again", "!!document.querySelector('#confirm-rerun')")
	if !eval[bool](b, "window.same === true") {
		b.t.Error("the page was loaded again while it followed the run")
	}
	b.patiently(chromedp.Click("//a[contains(@class,'job')][.//span[text()='test (asia)']]"))
	b.see("the job's page", "document.querySelector('#job-head b')?.textContent === 'test (asia)'")
	b.see("the folded group", "document.getElementById('L1.5')?.closest('details').open === false && !document.getElementById('L1.5').checkVisibility()")
	b.click(".log .grp .x")
	b.see("the unfolded group", "document.getElementById('L1.5').checkVisibility()")
	b.patiently(chromedp.Click("//nav[@id='steps']//a[.//span[text()='Test the cart']]"))
	b.see("the step alone", "document.readyState === 'complete' && location.search === '?step=2' && !document.querySelector('.log .step')")
	if text := eval[string](b, "document.querySelector('#log').innerText"); !strings.Contains(text, "total of asia: want 219.00") || !strings.Contains(text, "ok   cart of 40 articles") {
		b.t.Errorf("the log of the step shows %q", text)
	}
	b.open("/runs/" + run + "/jobs/" + b.w.jobOf(run, "test (asia)") + "#L2.41")
	b.see("the linked line", "document.querySelector('.l:target .x').textContent.startsWith('FAIL')")
	b.quiet()
}

// followThroughARestart follows a log while the server is stopped and started again: the page goes on, each line is there once.
func (b *browser) followThroughARestart(run string) {
	b.t.Helper()
	b.open("/runs/" + run)
	eval[bool](b, "window.same = true")
	b.see("the log growing", "document.querySelectorAll('#log .l').length > 20")
	b.mu.Lock()
	b.cutOff = true
	b.mu.Unlock()
	b.w.stop()
	b.see("that the page says it is cut off", "document.body.hasAttribute('data-cut') && !document.querySelector('#cut').hidden")
	b.w.start(0)
	b.see("that it is connected again", "!document.body.hasAttribute('data-cut')")
	b.mu.Lock()
	b.cutOff = false
	b.mu.Unlock()
	at := eval[int](b, "document.querySelectorAll('#log .l').length")
	b.see("the log growing again", fmt.Sprintf("document.querySelectorAll('#log .l').length > %d", at+20))
	eval[any](b, "document.querySelector('#log').scrollTop = 0")
	b.see("the button to follow", "!document.querySelector('#follow').hidden")
	at = eval[int](b, "document.querySelectorAll('#log .l').length")
	b.see("more lines", fmt.Sprintf("document.querySelectorAll('#log .l').length > %d", at+5))
	if top := eval[float64](b, "document.querySelector('#log').scrollTop"); top != 0 {
		b.t.Errorf("the log moved to %v under the reader", top)
	}
	b.oneOfEach()
	b.click("#follow")
	b.see("the end of the log", "(l => l.scrollTop + l.clientHeight > l.scrollHeight - 60)(document.querySelector('#log'))")
	b.touch("burst") // 100,000 lines: the page keeps the last ones
	began := time.Now()
	b.see("the end of the burst", "document.querySelector('#log').textContent.includes('burst 100000')")
	b.t.Logf("100,000 lines were on the page after %v", time.Since(began).Round(10*time.Millisecond))
	if n := eval[int](b, "document.querySelectorAll('#log .l').length"); n > 5000 {
		b.t.Errorf("the page holds %d lines", n)
	}
	b.touch("stop")
	b.see("the last line", "[...document.querySelectorAll('#log .x')].some(x => x.textContent === 'stopped')")
	b.see("the job's end", "document.querySelector('#job-head .st').textContent === 'success' && !document.querySelector('#log').dataset.stream")
	b.oneOfEach()
	if !eval[bool](b, "window.same === true") {
		b.t.Error("the page was loaded again")
	}
	b.see("that the next job waits and why", "!!document.querySelector('a.job:has(.queued) .why')")
	b.quiet()
}

func (b *browser) touch(file string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.w.dir, file), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// oneOfEach checks that a followed log has every line once, in order, and every heading once.
func (b *browser) oneOfEach() {
	b.t.Helper()
	ids := eval[[]string](b, "[...document.querySelectorAll('#log .l')].map(l => l.id)")
	next, step := 1, -1
	if _, err := fmt.Sscanf(ids[0], "L%d.%d", &step, &next); err != nil { // the page has dropped what was before
		b.t.Logf("the log begins with %s", ids[0])
	}
	for _, id := range ids {
		var s, n int
		if _, err := fmt.Sscanf(id, "S%d", &s); err == nil {
			if s <= step {
				b.t.Errorf("heading %s comes after step %d", id, step)
			}
			step, next = s, 1
			continue
		}
		if _, err := fmt.Sscanf(id, "L%d.%d", &s, &n); err != nil || s != step || n != next {
			b.t.Fatalf("line %s stands where L%d.%d should", id, step, next)
		}
		next++
	}
	if len(ids) < 50 {
		b.t.Errorf("only %d lines", len(ids))
	}
}

// confirm presses a button and the one that asks once more.
func (b *browser) confirm(id string) {
	b.t.Helper()
	b.see("the button "+id, fmt.Sprintf("!!document.querySelector('#confirm-%s')", id))
	b.click("#confirm-" + id + " > summary")
	b.click("#confirm-" + id + " .ask button")
}

// cancelAndRerun presses the buttons.
func (b *browser) cancelAndRerun(run string) {
	b.t.Helper()
	if err := os.Remove(filepath.Join(b.w.dir, "stop")); err != nil {
		b.t.Fatal(err)
	}
	b.open("/runs/" + run)
	b.see("a line", "!!document.querySelector('#log .l')")
	b.confirm("cancel")
	b.status("cancelled")
	b.confirm("rerun")
	b.see("the new run's page", fmt.Sprintf("location.pathname.startsWith('/runs/') && location.pathname !== '/runs/%s'", run))
	b.see("where it comes from", "document.querySelector('#run-head').innerText.includes('re-run of an earlier run')")
	b.confirm("cancel")
	b.status("cancelled")
	b.quiet()
}

func (w *world) jobOf(run, name string) string {
	w.t.Helper()
	d, err := w.api.Run(w.t.Context(), run)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, j := range d.Jobs {
		if j.DisplayName == name {
			return j.ID
		}
	}
	w.t.Fatalf("run %s has no job %s", run, name)
	return ""
}

// everyPage looks at all pages, wide and narrow, light and dark.
func (b *browser) everyPage(demo, slow string) {
	b.t.Helper()
	deliveries, err := b.w.api.Deliveries(b.t.Context(), client.DeliveryQuery{Limit: 1})
	if err != nil || len(deliveries.Deliveries) == 0 {
		b.t.Fatal(err)
	}
	pages := []string{
		"/runs", "/runs?status=failed&q=nothing", "/runs/" + demo, "/runs/" + slow, "/runs/" + slow + "?job=" + b.w.jobOf(slow, "wait"),
		"/queue", "/agents", "/agents?all=1", "/scalers", "/deliveries", "/deliveries/" + deliveries.Deliveries[0].ID,
		"/runs/" + demo + "/timeline", "/events", "/events/dead", "/workflows", "/schedules", "/instances", "/instances/jobs", "/settings", "/settings/cluster",
		"/settings/tokens", "/settings/organisations", "/access-log",
	}
	for _, width := range []int64{1280, 400} {
		for _, scheme := range []string{"light", "dark"} {
			b.screen(width, scheme)
			for _, p := range pages {
				b.open(p)
				b.see("the style sheet", "getComputedStyle(document.body).marginTop === '0px'")
				if over := eval[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					b.t.Errorf("%s is %v px too wide for %d px (%s)", p, over, width, scheme)
				}
				if bg := eval[string](b, "getComputedStyle(document.body).backgroundColor"); (bg == "rgb(17, 19, 21)") != (scheme == "dark") {
					b.t.Errorf("%s has background %s in the %s scheme", p, bg, scheme)
				}
			}
		}
	}
	b.screen(1280, "light")
}

// withoutScripts reads a run's page as a browser that runs none.
func (b *browser) withoutScripts(run string) {
	b.t.Helper()
	set := func(off bool) {
		if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off}); err != nil {
			b.t.Fatal(err)
		}
	}
	set(true)
	b.open("/runs/" + run)
	b.click("#log details:not([open]) > summary .x") // a group unfolds without a script too
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("main")))
	if err != nil {
		b.t.Fatal(err)
	}
	set(false)
	for _, want := range []string{"Cache the price table per region", "announce", "price table of asia", "article-05", "FAIL total of asia"} {
		if !strings.Contains(text, want) {
			b.t.Errorf("without scripts the page lacks %q", want)
		}
	}
}
