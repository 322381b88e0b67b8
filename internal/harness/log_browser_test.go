package harness

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/kici-go/kici/internal/blob"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/store"
)

// A job whose first step is filled from outside, and whose second writes until it is told to stop.
const logWorkflow = `name: log
on: push
jobs:
  write:
    runs-on: linux
    steps:
      - name: Big
        run: echo '::group::begin'; echo inside; echo '::endgroup::'
      - name: Tick
        run: |
          for n in $(seq 1 100000); do
            echo "tick $n"
            if [ -e "%[1]s/stop" ]; then exit 0; fi
            sleep 0.1
          done
`

// The race detector makes reading and searching ten times slower, so the log is a tenth as long then.
const (
	bigBytes    = 200 << 20 / slowness
	needleEvery = 500_000 / slowness
	needleText  = "Needle in the hay"
)

type silence struct{}

func (silence) Publish(store.Topic, string) {}

// bigLog is what fillLog wrote.
type bigLog struct {
	lines   int
	needles []int
}

// middle is a line that stands far from both ends.
func (l bigLog) middle() int { return l.lines * 5 / 9 }

// fillLog makes the log of a step that has ended as long as one gets in a bad week.
func (w *world) fillLog(run, job string, step, from int) bigLog {
	w.t.Helper()
	blobs, err := blob.Open(filepath.Join(w.role.DataDir, "blobs"))
	if err != nil {
		w.t.Fatal(err)
	}
	st := logs.New(blobs, silence{}, obs.NewMetrics(), obs.Discard(), logs.Config{})
	defer func() { _ = st.Close(); _ = blobs.Close() }()
	ref := logs.Job{RunID: run, JobID: job, Attempt: 1}
	end, err := st.Seek(w.t.Context(), ref, step, 1<<40)
	if err != nil || int(end.Lines) != from {
		w.t.Fatalf("the step has %d lines, %v", end.Lines, err)
	}
	big := bigLog{lines: from}
	var b bytes.Buffer
	for at := end.Bytes; at < bigBytes; {
		for b.Len() < 4<<20 {
			big.lines++
			word := "hay"
			if big.lines%needleEvery == needleEvery/2 {
				word = needleText
				big.needles = append(big.needles, big.lines)
			}
			fmt.Fprintf(&b, `{"ts":1700000000000,"level":"stdout","msg":"line %d of a long log\tin which one looks for %s and finds it late"}`+"\n", big.lines, word)
		}
		ack, err := st.Append(w.t.Context(), ref, step, at, &b)
		if err != nil {
			w.t.Fatal(err)
		}
		at = ack.Offset
		b.Reset()
	}
	return big
}

// TestBrowserLog reads a log of 200 MB in a real browser while its job runs.
func TestBrowserLog(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	chromium(t)
	w := newWorld(t, "", logWorkflow)
	w.start(0)
	b := newBrowser(t, w)
	run := w.pushTo(w.hook, "log")
	job := w.jobOf(run, "write")
	path := "/runs/" + run + "/jobs/" + job
	b.signIn(path)
	b.see("the second step's lines", "[...document.querySelectorAll('#log .x')].some(x => x.textContent === 'tick 3')")
	b.foldsAGroup()
	big := w.fillLog(run, job, 1, 3)
	began := time.Now()
	b.open(path + "?step=1")
	b.see("the end", fmt.Sprintf("!!document.getElementById('L%d')", big.lines))
	t.Logf("the end of %d lines was on the page after %v", big.lines, time.Since(began).Round(time.Millisecond))
	b.scrollsAndJumps(big)
	b.searches(path, big)
	b.linksLines(path, big.middle())
	b.downloads(path, big)
	b.followsAStep(path)
	w.touch("stop")
	b.see("the end of the job", "document.querySelector('#job-head .st')?.textContent === 'success' && !document.querySelector('#log').dataset.stream")
	b.readsWithoutScripts(path, big)
	b.quiet()
	w.until("the agent is gone", 60*time.Second, func() bool { return w.settled() == nil })
}

func (w *world) touch(file string) { (&browser{t: w.t, w: w}).touch(file) }

func (b *browser) foldsAGroup() {
	b.t.Helper()
	b.see("the folded group", "document.querySelector('#log details.g') && !document.querySelector('#log details.g').open")
	b.click("#log summary .x")
	b.see("the unfolded group", "document.querySelector('#log details.g').open && document.getElementById('L1.2').checkVisibility()")
}

func (b *browser) scrollsAndJumps(big bigLog) {
	b.t.Helper()
	eval[any](b, "document.querySelector('#log').scrollTop = 0")
	b.see("lines before those of the page", fmt.Sprintf("!!document.getElementById('L%d') && !!document.querySelector('[data-more=up]')", big.lines-1400))
	for range 6 {
		n := eval[int](b, "Number(document.querySelector('#log .l').id.slice(1))")
		eval[any](b, "document.querySelector('#log').scrollTop = 0")
		b.see("more lines above", fmt.Sprintf("Number(document.querySelector('#log .l').id.slice(1)) < %d", n))
	}
	if n := eval[int](b, "document.querySelectorAll('#log .l').length"); n > 3600 {
		b.t.Errorf("the page holds %d lines", n)
	}
	b.inOrder()
	b.click("[data-jump=start]")
	b.see("the start", "!!document.getElementById('L1') && document.readyState === 'complete'")
	eval[any](b, "document.querySelector('#log').scrollTop = 1e9")
	b.see("lines after those of the page", "!!document.getElementById('L1400')")
	b.inOrder()
	b.click("[data-jump=end]")
	b.see("the end again", fmt.Sprintf("!!document.getElementById('L%d')", big.lines))
}

// inOrder checks that the lines on the page follow each other.
func (b *browser) inOrder() {
	b.t.Helper()
	if gap := eval[string](b, "(() => { const n = [...document.querySelectorAll('#log .l')].map(l => Number(l.id.slice(1))); const i = n.findIndex((x, i) => i && x !== n[i - 1] + 1); return i < 0 ? '' : n[i - 1] + ', ' + n[i] })()"); gap != "" {
		b.t.Errorf("lines %s stand beside each other", gap)
	}
}

func (b *browser) searches(path string, big bigLog) {
	b.t.Helper()
	began := time.Now()
	b.open(path + "?step=1&q=needle+in+the")
	b.searchOn("the first match", fmt.Sprintf("document.querySelector('#L%d mark')?.textContent === 'Needle in the'", big.needles[0]), ".matches ~ [data-match=next]")
	b.t.Logf("the first match was on the page after %v", time.Since(began).Round(time.Millisecond))
	press := func(key, way string, line int) {
		b.t.Helper()
		eval[any](b, fmt.Sprintf("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: %q, bubbles: true}))", key))
		b.searchOn(fmt.Sprintf("the match in line %d", line), fmt.Sprintf("!!document.querySelector('#L%d.sel.hit')", line), ".matches ~ [data-match="+way+"]")
	}
	press("n", "next", big.needles[1])
	press("n", "next", big.needles[2])
	press("N", "prev", big.needles[1])
	b.open(path + "?q=NEEDLE")
	last := big.needles[len(big.needles)-1]
	b.searchOn("the last match", fmt.Sprintf("[...document.querySelectorAll('.found .hit .no')].some(x => x.textContent === '%d')", last), ".found > p > a")
	b.open(path + "?step=1&q=not+there+at+all")
	b.searchOn("that it is not there", "/^(not in this step|no other match)$/.test(document.querySelector('.matches')?.textContent)", ".matches ~ [data-match=next]")
}

// searchOn waits for a page that shows what was looked for. A search is bounded in time: on a slow machine the page says how far it
// came, and a link searches on.
func (b *browser) searchOn(what, script, link string) {
	b.t.Helper()
	more := fmt.Sprintf("[...document.querySelectorAll(%q)].find(a => a.textContent === 'Search on')", link)
	for {
		b.see(what, fmt.Sprintf("document.readyState === 'complete' && (%s || !!%s)", script, more))
		if eval[bool](b, script) {
			return
		}
		here := eval[string](b, "location.href")
		eval[any](b, more+".click()")
		b.see("the next part of the search", fmt.Sprintf("location.href !== %q", here))
	}
}

func (b *browser) linksLines(path string, n int) {
	b.t.Helper()
	id := func(n int) string { return fmt.Sprintf("L%d", n) }
	b.open(path + "?step=1#" + id(n))
	b.see("the linked line", fmt.Sprintf("(l => l?.matches('.sel') && l.querySelector('.x').textContent.startsWith('line %d of'))(document.getElementById(%q))", n, id(n)))
	b.see("that it is in view", fmt.Sprintf("(r => r.top > 0 && r.bottom < innerHeight)(document.getElementById(%q).getBoundingClientRect())", id(n)))
	b.click("#" + id(n+2) + " .no")
	b.see("the chosen line in the address", fmt.Sprintf("location.hash === '#%s' && location.search.includes('line=%d')", id(n+2), n+2))
	eval[any](b, fmt.Sprintf("document.querySelector('#%s .no').dispatchEvent(new MouseEvent('click', {shiftKey: true, bubbles: true, cancelable: true}))", id(n+6)))
	b.see("the range", fmt.Sprintf("location.hash === '#%s-%s' && document.querySelectorAll('.l.sel').length === 5", id(n+2), id(n+6)))
	b.open(fmt.Sprintf("%s#L1.%d", path, n/2)) // from a page of all steps
	b.see("the line in its step", fmt.Sprintf("location.search.includes('step=1') && !!document.querySelector('#%s.sel')", id(n/2)))
}

// downloads reads the raw log to its end while the job runs.
func (b *browser) downloads(path string, big bigLog) {
	b.t.Helper()
	b.open(path + "?step=1")
	eval[any](b, fmt.Sprintf(`(async () => {
		const r = await fetch(%q), reader = r.body.getReader();
		let lines = 0;
		for (let c = await reader.read(); !c.done; c = await reader.read()) for (const x of c.value) if (x === 10) lines++;
		window.raw = r.headers.get("content-disposition") + " " + lines;
	})(), 0`, path+"/log.txt?download&step=1"))
	b.see("the end of the raw log", "!!window.raw")
	if got, want := eval[string](b, "window.raw"), fmt.Sprintf(`attachment; filename="write-step-1.log" %d`, big.lines); got != want {
		b.t.Errorf("downloaded %s, want %s", got, want)
	}
}

func (b *browser) followsAStep(path string) {
	b.t.Helper()
	b.open(path + "?step=2")
	b.see("a line", "!!document.querySelector('#log .l')")
	at := eval[int](b, "document.querySelectorAll('#log .l').length")
	b.see("the log growing", fmt.Sprintf("document.querySelectorAll('#log .l').length > %d", at+10))
	b.inOrder()
	b.see("that it keeps to its end", "(l => l.scrollTop + l.clientHeight > l.scrollHeight - 60)(document.querySelector('#log'))")
}

// readsWithoutScripts goes through the log by its plain links.
func (b *browser) readsWithoutScripts(path string, big bigLog) {
	b.t.Helper()
	set := func(off bool) {
		if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off}); err != nil {
			b.t.Fatal(err)
		}
	}
	set(true)
	defer set(false)
	for query, want := range map[string]string{
		fmt.Sprintf("?step=1&line=%d", big.middle()): fmt.Sprintf("line %d of", big.middle()),
		"?step=1&line=1":          "line 700 of",
		"?step=1&line=end":        fmt.Sprintf("line %d of", big.lines),
		"?step=1&q=line+700":      "line 700 of",
		"?q=line+700":             "line 700 of",
		"?step=1&line=5&time=abs": "22:13:20.000",
	} {
		b.open(path + query)
		text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("main")))
		if err != nil || !strings.Contains(text, want) {
			b.t.Errorf("without scripts %s lacks %q (%v)", query, want, err)
		}
	}
}
