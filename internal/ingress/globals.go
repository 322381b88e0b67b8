package ingress

import (
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Globals is what the cluster and the organisation say of global workflows (GLB-2). Its zero value allows none: settings that cannot
// be read are that.
type Globals struct {
	Enabled bool       // the cluster's switch
	Allow   []RepoRule // repositories that may author global workflows; nil is every one, an empty list none
	Deny    []RepoRule // repositories whose events start none
}

// RepoRule is one entry of a list.
type RepoRule struct {
	RoutingKey string // "" is any
	Pattern    string // of the repository's identifier, as branch patterns are
}

// mayAuthor says why a repository may not have global workflows, "" when it may. An invalid pattern never allows.
func (g Globals) mayAuthor(routingKey, repo string) string {
	if g.Allow == nil || slices.ContainsFunc(g.Allow, func(r RepoRule) bool { return r.matches(routingKey, repo, false) }) {
		return ""
	}
	return fmt.Sprintf("repository %s is not in the organisation's list of those that may author global workflows", repo)
}

// mayStart says why events of a repository start no global workflows, "" when they do. An invalid pattern always denies.
func (g Globals) mayStart(routingKey, repo string) string {
	if slices.ContainsFunc(g.Deny, func(r RepoRule) bool { return r.matches(routingKey, repo, true) }) {
		return fmt.Sprintf("repository %s is in the organisation's list of those whose events start no global workflows", repo)
	}
	return ""
}

func (r RepoRule) matches(routingKey, repo string, invalid bool) bool {
	if r.RoutingKey != "" && r.RoutingKey != routingKey {
		return false
	}
	matched, valid := workflow.MatchRepo(r.Pattern, repo)
	return matched || !valid && invalid
}

func (s *Service) mayAuthor(row db.Source, w *lock.Workflow) string {
	if !workflow.Global(w) {
		return ""
	}
	return s.d.Globals(row.OrgID).mayAuthor(row.RoutingKey, row.Repo)
}
