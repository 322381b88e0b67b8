package workflow

import (
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Global reports whether a workflow also waits for events of other repositories (GLB-1).
func Global(w *lock.Workflow) bool {
	return slices.ContainsFunc(w.On, func(t lock.Trigger) bool { return len(t.Repos) > 0 })
}

// MatchGlobal is Match for an event of another repository: only triggers that name repositories count, the others are for the
// workflow's own.
func MatchGlobal(w *lock.Workflow, ev ci.Event) Decision { return match(w, ev, isGlobal) }

// FollowsType reports whether a workflow waits for events of this type from other repositories.
func FollowsType(w *lock.Workflow, triggerType string) bool {
	return slices.ContainsFunc(w.On, func(t lock.Trigger) bool { return isGlobal(&t) && t.Type == triggerType })
}

func isGlobal(t *lock.Trigger) bool { return len(t.Repos) > 0 }

// repos is the filter by the event's repository; an empty one passes and is not recorded.
func (m *matcher) repos(t *lock.Trigger) bool {
	if len(t.Repos) == 0 {
		return true
	}
	ok, by := matchRepos(t.Repos, m.ev.Repo)
	c := Check{Check: "repos", Pattern: strings.Join(t.Repos, ", "), Value: m.ev.Repo, Passed: ok}
	switch {
	case by != "":
		c.Reason = "decided by " + by
	case !ok:
		c.Reason = "no pattern matches"
	}
	return m.record(c)
}

// matchRepos is WF-14: any exclusion that matches fails; then any include that matches passes, and exclusions alone pass.
func matchRepos(patterns []string, repo string) (ok bool, pattern string) {
	includes := false
	for _, p := range patterns {
		bare, exclude := strings.CutPrefix(p, "!")
		switch {
		case exclude && matchGlob(bare, repo):
			return false, p
		case !exclude:
			includes = true
			if !ok && matchGlob(p, repo) {
				ok, pattern = true, p
			}
		}
	}
	return ok || !includes, pattern
}

// MatchRepo matches one pattern of an operator's list. A pattern that cannot be parsed gives valid = false.
func MatchRepo(pattern, repo string) (matched, valid bool) {
	if checkGlob(pattern) != nil {
		return false, false
	}
	return matchGlob(pattern, repo), true
}
