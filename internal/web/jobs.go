package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
)

// jobsShown is how many jobs a page lists. A run of more is summed up instead of drawn.
const jobsShown = 100

// jobFilter narrows a run's list of jobs.
type jobFilter struct{ Status, Name, After string }

func jobFilterOf(q url.Values) jobFilter {
	f := jobFilter{q.Get("status"), q.Get("name"), q.Get("after")}
	if !slices.Contains(urgency, f.Status) {
		f.Status = ""
	}
	return f
}

func (f jobFilter) values() url.Values {
	q := url.Values{}
	for k, v := range map[string]string{"status": f.Status, "name": f.Name, "after": f.After} {
		if v != "" {
			q.Set(k, v)
		}
	}
	return q
}

func (f jobFilter) query() string { return f.values().Encode() }

func (f jobFilter) with(status string) jobFilter { return jobFilter{Status: status, Name: f.Name} }

func (f jobFilter) next(cursor string) jobFilter {
	f.After = cursor
	return f
}

func (f jobFilter) any() bool { return f != jobFilter{} }

func (f jobFilter) fits(j client.Job) bool {
	return (f.Status == "" || j.Display.Class == f.Status) &&
		(f.Name == "" || strings.Contains(strings.ToLower(j.DisplayName+"\n"+j.Name), strings.ToLower(f.Name)))
}

// jobList is a page of a run's jobs with the time scale of them all.
type jobList struct {
	Filter   jobFilter
	Rows     []client.Job
	Matching int // jobs that fit the filter, on all pages
	Next     string
	Counts   []jobCount // of the whole run
	Bases    []baseCount
}

// jobCount is how many jobs are in one status.
type jobCount struct {
	Class, Word string
	N           int
}

// baseCount sums up the jobs of one base name.
type baseCount struct {
	Name   string
	N      int
	Counts []jobCount
}

// urgency orders the jobs of a large run: what needs a person first.
var urgency = []string{"failed", "running", "held", "queued", "pending", "allowed", "cancelled", "skipped", "success"}

func rank(j client.Job) int { return rankOf(j.Display.Class) }

func rankOf(class string) int {
	if i := slices.Index(urgency, class); i >= 0 {
		return i
	}
	return len(urgency)
}

// jobListOf makes the page that a filter asks for. A large run is ordered by urgency, a small one as its workflow is.
func jobListOf(jobs []client.Job, f jobFilter) (jobList, error) {
	type place struct{ rank, at int }
	after := place{-1, -1}
	if f.After != "" {
		a, b, ok := strings.Cut(f.After, ".")
		r, e1 := strconv.Atoi(a)
		i, e2 := strconv.Atoi(b)
		if !ok || e1 != nil || e2 != nil {
			return jobList{}, fmt.Errorf("%w: after must be the place of a job, as the link to the next page has it", read.ErrInvalid)
		}
		after = place{r, i}
	}
	out := jobList{Filter: f, Counts: countJobs(jobs), Bases: countBases(jobs)}
	var fit []place
	for i, j := range jobs {
		if f.fits(j) {
			p := place{0, i}
			if len(jobs) > jobsShown {
				p.rank = rank(j)
			}
			fit = append(fit, p)
		}
	}
	out.Matching = len(fit)
	order := func(a, b place) int { return cmp.Or(a.rank-b.rank, a.at-b.at) }
	slices.SortFunc(fit, order)
	fit = slices.DeleteFunc(fit, func(p place) bool { return order(p, after) <= 0 })
	if len(fit) > jobsShown {
		fit = fit[:jobsShown]
		last := fit[jobsShown-1]
		out.Next = fmt.Sprintf("%d.%d", last.rank, last.at)
	}
	for _, p := range fit {
		out.Rows = append(out.Rows, jobs[p.at])
	}
	return out, nil
}

// countJobs counts by status, in the order of urgency.
func countJobs(jobs []client.Job) (out []jobCount) {
	for _, j := range jobs {
		i := slices.IndexFunc(out, func(c jobCount) bool { return c.Class == j.Display.Class })
		if i < 0 {
			i = len(out)
			out = append(out, jobCount{Class: j.Display.Class, Word: j.Display.Word})
		}
		out[i].N++
	}
	slices.SortStableFunc(out, func(a, b jobCount) int {
		return rankOf(a.Class) - rankOf(b.Class)
	})
	return out
}

func countBases(jobs []client.Job) (out []baseCount) {
	of := map[string][]client.Job{}
	var names []string
	for _, j := range jobs {
		if of[j.BaseName] == nil {
			names = append(names, j.BaseName)
		}
		of[j.BaseName] = append(of[j.BaseName], j)
	}
	for _, n := range names {
		out = append(out, baseCount{Name: n, N: len(of[n]), Counts: countJobs(of[n])})
	}
	slices.SortStableFunc(out, func(a, b baseCount) int { return rankOf(a.Counts[0].Class) - rankOf(b.Counts[0].Class) })
	return out
}

// basesShown bounds the summary of a run whose jobs all have names of their own.
const basesShown = 24

func (l jobList) bases() []baseCount { return l.Bases[:min(len(l.Bases), basesShown)] }

// share is the width of one status in the bar of a base name, in percent.
func (b baseCount) shares() (out [][3]string) {
	x := 0.0
	for _, c := range b.Counts {
		w := 100 * float64(c.N) / float64(b.N)
		out = append(out, [3]string{c.Class, fmt.Sprintf("%.2f", x), fmt.Sprintf("%.2f", w)})
		x += w
	}
	return out
}

func (b baseCount) words() string {
	var out []string
	for _, c := range b.Counts {
		out = append(out, fmt.Sprintf("%d %s", c.N, c.Word))
	}
	return strings.Join(out, ", ")
}
