package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// film is a run as a list of snapshots with time between them.
type film struct {
	frames []client.RunDetail
	pause  time.Duration
	err    error
}

func (f film) FollowRun(ctx context.Context, _ string, show func(client.RunDetail) error) error {
	for _, d := range f.frames {
		if err := show(d); err != nil {
			return err
		}
		select {
		case <-time.After(f.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.err != nil {
		return f.err
	}
	return nil
}

func status(word, class string) client.Status {
	return client.Status{Status: word, Word: word, Class: class}
}

func at(s int) *client.Time { t := client.TimeOf(int64(s) * 1000); return &t }

func ms(n int64) *int64 { return &n }

func frame(run client.Status, jobs ...client.Job) client.RunDetail {
	return client.RunDetail{Run: client.Run{
		ID: "id", Repo: "acme/shop", Number: 482, Workflow: "ci", Branch: "main", SHA: "1a2b3c4d5e6f", Title: "fix\x1b[2J it",
		Status: run.Status, Display: run, DurationMs: ms(1000),
	}, Jobs: jobs}
}

func job(name string, s client.Status) client.Job {
	return client.Job{ID: name, Name: name, DisplayName: name, Status: s.Status, Display: s}
}

func story() []client.RunDetail {
	waiting := job("test", status("waiting", "pending"))
	waiting.Why = "waits for build"
	queued := job("build", status("queued", "queued"))
	queued.Why = "agent a1 is starting for it by local on hydra"
	running := job("build", status("running", "running"))
	running.AgentID, running.StartedAt, running.DurationMs = "a1", at(1), ms(2000)
	running.Steps = []client.Step{
		{Index: 0, Name: "set up", Status: "success", Display: status("success", "success"), FinishedAt: at(1), DurationMs: ms(300)},
		{Index: 1, Name: "make", Status: "running", Display: status("running", "running")},
	}
	done := running
	done.Status, done.Display, done.FinishedAt, done.DurationMs = "success", status("success", "success"), at(4), ms(3000)
	done.Steps = []client.Step{running.Steps[0], {Index: 1, Name: "make", Status: "success", Display: status("success", "success"), FinishedAt: at(4), DurationMs: ms(2700)}}
	failed := job("test", status("failed", "failed"))
	failed.Why, failed.FinishedAt, failed.DurationMs = `step "go test" failed with exit code 1`, at(9), ms(5000)
	end := frame(status("failed", "failed"), done, failed)
	end.FinishedAt, end.FailureReason = at(9), "job test failed"
	return []client.RunDetail{
		frame(status("pending", "pending"), queued, waiting),
		frame(status("running", "running"), running, waiting),
		frame(status("running", "running"), running, waiting), // nothing new: nothing is said
		frame(status("running", "running"), done, waiting),
		end,
	}
}

func TestVerdict(t *testing.T) {
	for reason, want := range map[string]string{
		"":                 "acme/shop #482: cancelled",
		"cancelled by ada": "acme/shop #482: cancelled by ada",
		"superseded":       "acme/shop #482: cancelled – superseded",
	} {
		if got := verdict(client.Run{Repo: "acme/shop", Number: 482, Display: client.Status{Word: "cancelled"}, FailureReason: reason}); got != want {
			t.Errorf("%q: %q", reason, got)
		}
	}
}

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d, err := Run(context.Background(), film{frames: story(), pause: time.Second}, "id", &out, Options{})
		if err != nil || d.Status != "failed" {
			t.Fatalf("%v, %v", d.Status, err)
		}
		want := `acme/shop #482  ci  main 1a2b3c4d  fix it
build: queued – agent a1 is starting for it by local on hydra
test: waiting – waits for build
build: running on a1
build: step 0 "set up" success in 0.3s
build: step 1 "make" running
build: step 1 "make" success in 2.7s
build: success in 3.0s
test: failed in 5.0s – step "go test" failed with exit code 1
acme/shop #482: failed in 1.0s – job test failed
`
		if out.String() != want {
			t.Errorf("got:\n%s\nwant:\n%s", &out, want)
		}
	})
}

// screen plays what was written to a terminal and returns what is left standing.
func screen(t *testing.T, written string) []string {
	t.Helper()
	var lines []string
	row := 0
	for len(written) > 0 {
		switch {
		case strings.HasPrefix(written, hideCursor), strings.HasPrefix(written, showCursor):
			written = written[len(hideCursor):]
		case strings.HasPrefix(written, clearToEnd):
			lines, written = lines[:row], written[len(clearToEnd):]
		case strings.HasPrefix(written, "\x1b["):
			var n int
			if _, err := fmt.Sscanf(written, "\x1b[%dA\r", &n); err != nil || n > row {
				t.Fatalf("at row %d: %.20q (%v)", row, written, err)
			}
			row, written = row-n, written[strings.Index(written, "\r")+1:]
		default:
			i := strings.Index(written, "\n")
			if i < 0 || strings.Contains(written[:i], "\x1b") {
				t.Fatalf("unexpected %.40q", written)
			}
			lines, row, written = append(lines, written[:i]), row+1, written[i+1:]
		}
	}
	return lines
}

func TestPicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		_, err := Run(context.Background(), film{frames: story(), pause: 3 * time.Second}, "id", &out, Options{Terminal: true, Width: 70})
		if err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if !strings.HasPrefix(text, hideCursor) || !strings.HasSuffix(text, showCursor) {
			t.Error("the cursor is not hidden and shown again")
		}
		for _, part := range []string{"4.8s  1/1 make", "○ queued"} { // clocks go on between snapshots
			if !strings.Contains(text, part) {
				t.Errorf("%q was never drawn", part)
			}
		}
		got := strings.Join(screen(t, text), "\n")
		want := `● failed  acme/shop #482  ci  main 1a2b3c4d  fix it  1.0s
  ● success  build     3.0s
  ● failed   test      5.0s  step "go test" failed with exit code 1`
		if got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
		for line := range strings.Lines(text) {
			if w := ansi.StringWidth(line); w > 70 {
				t.Errorf("a line is %d wide: %q", w, line)
			}
		}
	})
}

// A run with more jobs than the screen has lines shows what is at work and what failed; at the end it shows all.
func TestManyJobs(t *testing.T) {
	var jobs []client.Job
	for i := range 100 {
		j := job(fmt.Sprintf("job %d", i), status("success", "success"))
		switch i {
		case 70:
			j = job("job 70", status("running", "running"))
		case 90:
			j = job("job 90", status("failed", "failed"))
		}
		jobs = append(jobs, j)
	}
	p := &picture{o: Options{Height: 12, Now: time.Now}, last: frame(status("running", "running"), jobs...)}
	small := strings.Join(p.lines(p.rows()), "\n")
	if n := strings.Count(small, "\n") + 1; n > 10 || !strings.Contains(small, "job 70") || !strings.Contains(small, "job 90") || !strings.Contains(small, "92 more") {
		t.Errorf("%d lines:\n%s", n, small)
	}
	if all := p.lines(1 << 20); len(all) != 101 {
		t.Errorf("%d lines of 100 jobs", len(all))
	}
}

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		lost := errors.New("connection lost")
		d, err := Run(context.Background(), film{frames: story()[:2], pause: time.Second, err: lost}, "id", &out, Options{Terminal: true})
		if !errors.Is(err, lost) || d.Status != "running" || !strings.HasSuffix(out.String(), showCursor) {
			t.Errorf("%v, %v", d.Status, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		d, err = Run(ctx, film{frames: story(), pause: time.Second}, "id", &out, Options{})
		if !errors.Is(err, context.DeadlineExceeded) || d.ID != "id" {
			t.Errorf("%v, %v", d.Status, err)
		}
	})
}
