package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/client"
)

// foldFrom is how many children of one matrix job a column shows before it folds them into a group.
const foldFrom = 9

// graph is the jobs of a run in columns of needs-depth, with the scale of their time lines.
type graph struct {
	Columns [][]cell
	names   map[string]string // job id → displayed name
	all     []client.Job
	from    int64 // UTC ms: the run's first start
	now     int64 // UTC ms, coarse: what runs is drawn up to here
	length  int64 // ms: up to its end, or now
	queued  int64 // UTC ms: when its first job was queued; the time line begins there
	whole   int64 // ms: from there to the end, or now
}

// cell is one job, or a folded group of the children of one job.
type cell struct {
	Group string // base name when folded
	Open  bool
	Jobs  []client.Job
}

// graphOf lays out jobs. open is the id of the job that is shown below; a group that holds it is unfolded.
func graphOf(jobs []client.Job, open string, now int64) graph {
	g := graph{names: map[string]string{}, all: jobs, length: 1}
	for _, j := range jobs {
		g.names[j.ID] = j.DisplayName
		for len(g.Columns) <= j.Level {
			g.Columns = append(g.Columns, nil)
		}
		g.from, g.queued = earlier(g.from, j.StartedAt), earlier(earlier(g.queued, j.QueuedAt), j.StartedAt)
	}
	for i := range g.Columns {
		g.Columns[i] = column(jobs, i, open)
	}
	g.now = g.queued + coarse(now-g.queued)
	for _, j := range jobs {
		if j.StartedAt != nil {
			g.length = max(g.length, g.end(j)-g.from)
		}
		if j.StartedAt != nil || j.QueuedAt != nil {
			g.whole = max(g.whole, g.end(j)-g.queued)
		}
	}
	return g
}

// earlier is the earlier of two instants; 0 and nil are none.
func earlier(at int64, t *client.Time) int64 {
	if t == nil || at != 0 && at <= t.UnixMilli() {
		return at
	}
	return t.UnixMilli()
}

// coarse rounds a length of time up so that it changes some thirty times while it doubles: what runs is not drawn again, and sent
// again to every open page, for each moment that goes by.
func coarse(ms int64) int64 {
	step := int64(1)
	for step*32 < ms {
		step *= 2
	}
	return (max(ms, 0) + step - 1) / step * step
}

// end is when a job ended, or now.
func (g graph) end(j client.Job) int64 {
	if j.FinishedAt != nil {
		return j.FinishedAt.UnixMilli()
	}
	return g.now
}

func column(jobs []client.Job, level int, open string) []cell {
	size := map[string]int{}
	for _, j := range jobs {
		if j.Level == level {
			size[j.BaseName]++
		}
	}
	var cells []cell
	at := map[string]int{} // base name → its group
	for _, j := range jobs {
		if j.Level != level {
			continue
		}
		if size[j.BaseName] < foldFrom {
			cells = append(cells, cell{Jobs: []client.Job{j}})
			continue
		}
		i, seen := at[j.BaseName]
		if !seen {
			i = len(cells)
			at[j.BaseName] = i
			cells = append(cells, cell{Group: j.BaseName})
		}
		cells[i].Jobs = append(cells[i].Jobs, j)
		cells[i].Open = cells[i].Open || j.ID == open
	}
	for _, c := range cells {
		slices.SortStableFunc(c.Jobs, func(a, b client.Job) int { return troubled(a) - troubled(b) })
	}
	return cells
}

// troubled puts failed jobs first in a folded group.
func troubled(j client.Job) int {
	switch j.Display.Class {
	case "failed":
		return 0
	case "allowed":
		return 1
	}
	return 2
}

// summary counts a folded group by status.
func (c cell) summary() string { return tally(c.Jobs) }

func (g graph) headline() string {
	return count(len(g.all), "job", "jobs") + ": " + tally(g.all)
}

// tally is "3 success, 1 running", in the order in which the words first appear.
func tally(jobs []client.Job) string {
	n := map[string]int{}
	var words []string
	for _, j := range jobs {
		w := j.Display.Word
		if n[w] == 0 {
			words = append(words, w)
		}
		n[w]++
	}
	slices.SortStableFunc(words, func(a, b string) int { return n[b] - n[a] })
	for i, w := range words {
		words[i] = fmt.Sprintf("%d %s", n[w], w)
	}
	return strings.Join(words, ", ")
}

// needs is the tooltip that names what a job waited for.
func (g graph) needs(j client.Job) string {
	if len(j.Needs) == 0 {
		return ""
	}
	var names []string
	for _, id := range j.Needs[:min(len(j.Needs), 12)] {
		names = append(names, g.names[id])
	}
	if len(j.Needs) > 12 {
		names = append(names, "…")
	}
	return text("needs " + strings.Join(names, ", "))
}

// bar is where in the run a job's time lies, in percent; ok is false for a job that has not started.
func (g graph) bar(j client.Job) (x, w string, ok bool) {
	if j.StartedAt == nil {
		return "", "", false
	}
	return within(j.StartedAt.UnixMilli()-g.from, g.end(j)-g.from, g.length)
}

// within is a piece of a scale in percent. It keeps inside and is never too narrow to be seen.
func within(from, to, length int64) (x, w string, ok bool) {
	left := 100 * float64(from) / float64(length)
	width := max(1, 100*float64(to-from)/float64(length))
	left = min(max(left, 0), 99)
	return fmt.Sprintf("%.2f", left), fmt.Sprintf("%.2f", min(width, 100-left)), true
}

// stretch is a piece of a job's line in the time line: queued, starting, running.
type stretch struct{ Class, X, W string }

// segments are how a job spent its time, drawn to the scale of the run, and the same in words.
func (g graph) segments(j client.Job) (out []stretch, words string) {
	var said []string
	add := func(class, word string, from, to *client.Time) {
		if from == nil {
			return
		}
		end := g.end(j)
		if to != nil {
			end = min(to.UnixMilli(), end)
		}
		ms := end - from.UnixMilli()
		if ms < 0 || ms == 0 && class != "r" {
			return
		}
		x, w, _ := within(from.UnixMilli()-g.queued, end-g.queued, max(g.whole, 1))
		out = append(out, stretch{class, x, w})
		if j.FinishedAt != nil || to != nil {
			said = append(said, word+" "+durationMs(&ms))
		} else {
			said = append(said, word+" now")
		}
	}
	started := cmp.Or(j.StartedAt, j.FinishedAt)
	add("q", "queued", j.QueuedAt, cmp.Or(j.AssignedAt, started))
	if j.AssignedAt != nil && started != nil && j.AssignedAt.After(started.Time) {
		started = j.AssignedAt
	}
	add("s", "starting", j.AssignedAt, started)
	add("r", "ran", j.StartedAt, j.FinishedAt)
	return out, strings.Join(said, ", ")
}

// span is the length of the time line.
func (g graph) span() string { return durationMs(&g.whole) }
