package web

import (
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
	length  int64 // ms: up to its end, or now
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
		if j.StartedAt != nil && (g.from == 0 || j.StartedAt.UnixMilli() < g.from) {
			g.from = j.StartedAt.UnixMilli()
		}
	}
	for i := range g.Columns {
		g.Columns[i] = column(jobs, i, open)
	}
	for _, j := range jobs {
		if j.StartedAt == nil {
			continue
		}
		end := now
		if j.FinishedAt != nil {
			end = j.FinishedAt.UnixMilli()
		}
		g.length = max(g.length, end-g.from)
	}
	return g
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
	if j.StartedAt == nil || j.DurationMs == nil {
		return "", "", false
	}
	left := 100 * float64(j.StartedAt.UnixMilli()-g.from) / float64(g.length)
	width := max(1.5, 100*float64(*j.DurationMs)/float64(g.length))
	left = min(max(left, 0), 98.5)
	return fmt.Sprintf("%.2f", left), fmt.Sprintf("%.2f", min(width, 100-left)), true
}
