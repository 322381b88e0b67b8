package local

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/workflow"
)

func TestMain(m *testing.M) {
	guarded()
	if os.Getenv(stepcall.SocketVariable) != "" && len(os.Args) == 4 {
		playStep()
	}
	goleak.VerifyTestMain(m)
}

// flow compiles one workflow with the given jobs.
func flow(t *testing.T, jobs string) (plan.Facts, plan.Plan) {
	t.Helper()
	file, problems := workflow.Compile([]workflow.Source{{Path: workflow.FilesDir + "/ci.yaml", Data: []byte("on: push\njobs:\n" + jobs)}})
	if file == nil {
		t.Fatalf("%v", problems)
	}
	f := plan.Facts{Run: plan.Run{ID: "run", Repo: "acme/shop", Workflow: "ci", Number: 1, Attempt: 1}, Workflow: &file.Workflows[0], Event: ci.Event{Type: "push", Title: "fix"}}
	n := 0
	return f, plan.Make(f, func() string { n++; return fmt.Sprintf("job-%d", n) })
}

// played runs a plan whose jobs end as told by their names; others succeed.
func played(t *testing.T, jobs string, slots int, ends map[string]ci.JobStatus) (State, []string, int) {
	t.Helper()
	f, p := flow(t, jobs)
	r := New(Options{Plan: p, Facts: f, Jobs: slots, Now: time.Now})
	var mu sync.Mutex
	var order []string
	running, most := 0, 0
	r.job = func(i int) {
		r.mu.Lock()
		name := r.jobs[i].Name
		r.mu.Unlock()
		mu.Lock()
		order = append(order, name)
		running++
		most = max(most, running)
		mu.Unlock()
		status := ends[name]
		if status == "" {
			status = ci.JobSuccess
		}
		mu.Lock()
		running--
		mu.Unlock()
		r.ended(i, status, "", func(u *unit) { u.outputs = `{"who":"` + name + `"}` })
	}
	return r.Run(func(State) {}), order, most
}

func statuses(s State) map[string]string {
	out := map[string]string{}
	for _, j := range s.Jobs {
		out[j.Name] = string(j.Status)
	}
	return out
}

func TestNeedsConditionsAndVerdict(t *testing.T) {
	const tail = ", runs-on: x, steps: [{run: y}]}\n"
	for name, c := range map[string]struct {
		jobs string
		ends map[string]ci.JobStatus
		want string // job=status …, in the order of names
		run  ci.RunStatus
		why  string
	}{
		"chain": {"  a: {name: a" + tail + "  b: {needs: a" + tail, nil, "a=success b=success", ci.RunSuccess, ""},
		"failure skips what needs it, and what needs that": {
			"  a: {name: a" + tail + "  b: {needs: a" + tail + "  c: {needs: b" + tail,
			map[string]ci.JobStatus{"a": ci.JobFailed},
			"a=failed b=skipped c=skipped", ci.RunFailed, "a: failed",
		},
		"always, failure and success": {
			"  a: {name: a" + tail + "  b: {needs: a, if: always()" + tail + "  c: {needs: a, if: failure()" + tail + "  d: {needs: a, if: success()" + tail,
			map[string]ci.JobStatus{"a": ci.JobFailed},
			"a=failed b=success c=success d=skipped", ci.RunFailed, "a: failed",
		},
		"failure() looks through the jobs between": {
			"  a: {name: a" + tail + "  b: {needs: a" + tail + "  c: {needs: b, if: failure()" + tail,
			map[string]ci.JobStatus{"a": ci.JobFailed},
			"a=failed b=skipped c=success", ci.RunFailed, "a: failed",
		},
		"an allowed failure counts as success": {
			"  a: {continue-on-error: true" + tail + "  b: {needs: a" + tail, map[string]ci.JobStatus{"a": ci.JobFailed}, "a=failed b=success", ci.RunSuccess, "",
		},
		"conditions over results and outputs": {
			"  a: {name: a" + tail + "  b: {needs: a, if: needs.a.outputs.who == 'a' && needs.a.result == 'success'" + tail + "  c: {needs: a, if: needs.a.outputs.who == 'z'" + tail,
			nil, "a=success b=success c=skipped", ci.RunSuccess, "",
		},
		"one child of a matrix fails": {
			"  m: {strategy: {matrix: {v: [1, 2]}}" + tail + "  n: {needs: m" + tail,
			map[string]ci.JobStatus{"m (2)": ci.JobFailed},
			"m (1)=success m (2)=failed n=skipped", ci.RunFailed, "m (2): failed",
		},
		"an image is refused: jobs are processes here": {
			"  a: {container: alpine" + tail + "  b: {name: b" + tail, nil, "a=failed b=success", ci.RunFailed, "the image alpine",
		},
		"a matrix that cannot be expanded": {
			"  a: {strategy: {matrix: {v: '${{ fromJSON(''nonsense'') }}'}}" + tail + "  b: {needs: a" + tail, nil, "a=failed b=skipped", ci.RunFailed, "matrix",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := played(t, c.jobs, 2, c.ends)
			var got []string
			all := statuses(s)
			for _, n := range slices.Sorted(maps.Keys(all)) {
				got = append(got, n+"="+all[n])
			}
			if strings.Join(got, " ") != c.want || s.Status != c.run || !strings.Contains(s.Reason, c.why) {
				t.Errorf("%s, run %s (%s)", got, s.Status, s.Reason)
			}
		})
	}
}

func TestOrderAndBoundOfJobsAtOnce(t *testing.T) {
	var jobs strings.Builder
	for i := range 20 {
		fmt.Fprintf(&jobs, "  j%02d: {runs-on: x, steps: [{run: y}]}\n", i)
	}
	s, order, most := played(t, jobs.String(), 1, nil)
	if s.Status != ci.RunSuccess || !slices.IsSorted(order) || most != 1 {
		t.Errorf("%s, %d at once, order %v", s.Status, most, order)
	}
	if s, _, most := played(t, jobs.String(), 3, nil); s.Status != ci.RunSuccess || most > 3 {
		t.Errorf("%s, %d at once", s.Status, most)
	}
}

// NEED-9 on this machine: a window of a matrix, while other jobs go on beside it.
func TestMaxParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := flow(t, "  m: {strategy: {matrix: {v: [1, 2, 3, 4, 5]}, max-parallel: 2}, runs-on: x, steps: [{run: y}]}\n  other: {runs-on: x, steps: [{run: y}]}\n")
		r := New(Options{Plan: p, Facts: f, Jobs: 8, Now: time.Now})
		began := time.Now()
		at := map[string]time.Duration{}
		r.job = func(i int) {
			r.mu.Lock()
			at[r.jobs[i].Name] = time.Since(began)
			r.mu.Unlock()
			time.Sleep(time.Minute)
			r.ended(i, ci.JobSuccess, "", nil)
		}
		waits := ""
		s := r.Run(func(s State) {
			if i := slices.IndexFunc(s.Jobs, func(j JobState) bool { return j.Name == "m (5)" }); waits == "" {
				waits = s.Jobs[i].Why
			}
		})
		want := map[string]time.Duration{"m (1)": 0, "m (2)": 0, "other": 0, "m (3)": time.Minute, "m (4)": time.Minute, "m (5)": 2 * time.Minute}
		if s.Status != ci.RunSuccess || !maps.Equal(at, want) || !strings.Contains(waits, "max-parallel is 2") {
			t.Errorf("%s, began at %v, waited because %q", s.Status, at, waits)
		}
	})
}

// The first failure that is not allowed ends its matrix and nothing else.
func TestFailFast(t *testing.T) {
	const jobs = "  m: {strategy: {matrix: {v: [1, 2, 3, 4]}, fail-fast: %s, max-parallel: 3}, continue-on-error: %s, runs-on: x, steps: [{run: y}]}\n" +
		"  other: {runs-on: x, steps: [{run: y}]}\n  after: {needs: m, if: always(), runs-on: x, steps: [{run: y}]}\n"
	for name, c := range map[string]struct{ failFast, allowed, want string }{
		"on":                       {"true", "false", "after=success m (1)=failed m (2)=cancelled m (3)=cancelled m (4)=skipped other=success"},
		"on, and it may fail":      {"true", "true", "after=success m (1)=failed m (2)=success m (3)=success m (4)=success other=success"},
		"off, as when nobody asks": {"false", "false", "after=success m (1)=failed m (2)=success m (3)=success m (4)=success other=success"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := flow(t, fmt.Sprintf(jobs, c.failFast, c.allowed))
				r := New(Options{Plan: p, Facts: f, Jobs: 8, Now: time.Now})
				r.job = func(i int) {
					over := make(chan struct{})
					r.mu.Lock()
					name := r.jobs[i].Name
					if name != "m (3)" { // it is told before it could be
						r.jobs[i].cancel = func(bool) { close(over) }
					}
					r.mu.Unlock()
					if name == "m (1)" {
						time.Sleep(time.Second)
						r.ended(i, ci.JobFailed, "", nil)
						return
					}
					select {
					case <-time.After(2 * time.Second):
					case <-over:
						r.ended(i, ci.JobCancelled, "", nil)
						return
					}
					r.mu.Lock()
					stopped := r.jobs[i].stopped != ""
					r.mu.Unlock()
					if stopped {
						r.ended(i, ci.JobCancelled, "", nil)
						return
					}
					r.ended(i, ci.JobSuccess, "", nil)
				}
				s := r.Run(func(State) {})
				var got []string
				all := statuses(s)
				for _, n := range slices.Sorted(maps.Keys(all)) {
					got = append(got, n+"="+all[n])
				}
				if strings.Join(got, " ") != c.want {
					t.Errorf("%v", got)
				}
				for _, j := range s.Jobs {
					if j.Status == ci.JobCancelled && j.Why != "m (1) failed, and fail-fast is on" {
						t.Errorf("%s: %q", j.Name, j.Why)
					}
				}
			})
		})
	}
}

func TestCancelBeforeAndWhileJobsRun(t *testing.T) {
	f, p := flow(t, "  a: {runs-on: x, steps: [{run: y}]}\n  b: {runs-on: x, steps: [{run: y}]}\n  c: {needs: a, if: always(), runs-on: x, steps: [{run: y}]}\n")
	r := New(Options{Plan: p, Facts: f, Jobs: 1, Now: time.Now})
	told := make(chan bool, 4)
	r.job = func(i int) {
		r.mu.Lock()
		r.jobs[i].cancel = func(force bool) { told <- force }
		r.mu.Unlock()
		r.Cancel(false)
		if <-told {
			t.Error("forced at once")
		}
		r.Cancel(true)
		if !<-told {
			t.Error("not forced")
		}
		r.ended(i, ci.JobCancelled, "", nil)
	}
	var seen []ci.RunStatus
	s := r.Run(func(s State) { seen = append(seen, s.Status) })
	want := map[string]string{"a": "cancelled", "b": "cancelled", "c": "cancelled"}
	if got := statuses(s); !maps.Equal(got, want) || s.Status != ci.RunCancelled || s.Reason == "" {
		t.Errorf("%v, run %s %q, seen %v", got, s.Status, s.Reason, seen)
	}
}

func TestTimeoutOfTheRun(t *testing.T) {
	f, p := flow(t, "  a: {runs-on: x, steps: [{run: y}]}\n")
	f.Workflow.TimeoutMs = 1
	r := New(Options{Plan: p, Facts: f, Now: time.Now})
	r.job = func(i int) {
		over := make(chan bool)
		r.mu.Lock()
		r.jobs[i].cancel = func(bool) { close(over) }
		if r.cancelling != "" {
			close(over)
		}
		r.mu.Unlock()
		<-over
		r.ended(i, ci.JobCancelled, "", nil)
	}
	if s := r.Run(func(State) {}); s.Status != ci.RunCancelled || !strings.Contains(s.Reason, "timeout of 1ms") {
		t.Errorf("%s %q", s.Status, s.Reason)
	}
}

func TestAPlanWithoutJobsFails(t *testing.T) {
	f, p := flow(t, "  a: {runs-on: x, steps: [{run: y}]}\n")
	p.Jobs, p.Edges, p.Failure = nil, nil, &plan.Failure{Category: plan.InitMatrix, Message: "too many"}
	if s := New(Options{Plan: p, Facts: f, Now: time.Now}).Run(func(State) {}); s.Status != ci.RunFailed || s.Reason != "too many" {
		t.Errorf("%s %q", s.Status, s.Reason)
	}
}
