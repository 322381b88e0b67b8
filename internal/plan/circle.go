package plan

import (
	"strings"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// inCircle returns the names of jobs whose needs lead back to themselves, or that stand between two such circles. It takes
// away what has no open upstream, then what has no open downstream; what is left has no order to run in. The compiler
// refuses such files; a lock made by another program may still hold one.
func inCircle(jobs []lock.Job) map[string]bool {
	ups, downs := map[string][]string{}, map[string][]string{}
	left := map[string]bool{}
	for _, j := range jobs {
		left[j.Name] = true
	}
	for _, j := range jobs {
		for _, n := range j.Needs {
			if left[n.Job] {
				ups[j.Name] = append(ups[j.Name], n.Job)
				downs[n.Job] = append(downs[n.Job], j.Name)
			}
		}
	}
	trim(left, ups, downs)
	trim(left, downs, ups)
	return left
}

// trim deletes from left, one after the other, every name none of whose before is left.
func trim(left map[string]bool, before, after map[string][]string) {
	open := map[string]int{}
	var free []string
	for name := range left {
		for _, b := range before[name] {
			if left[b] {
				open[name]++
			}
		}
		if open[name] == 0 {
			free = append(free, name)
		}
	}
	for len(free) > 0 {
		name := free[len(free)-1]
		free = free[:len(free)-1]
		delete(left, name)
		for _, a := range after[name] {
			if open[a]--; open[a] == 0 && left[a] {
				free = append(free, a)
			}
		}
	}
}

// circleText names one way from a job of a circle onwards: "b, c, a".
func circleText(jobs []lock.Job, circle map[string]bool, start string) string {
	next := map[string]string{}
	for _, j := range jobs {
		for _, n := range j.Needs {
			if circle[n.Job] {
				next[j.Name] = n.Job
				break
			}
		}
	}
	var path []string
	seen := map[string]bool{}
	for at := start; !seen[at] && len(path) < 20; {
		seen[at] = true
		at = next[at]
		path = append(path, at)
	}
	return strings.Join(path, ", ")
}
