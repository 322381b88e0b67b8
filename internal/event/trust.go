package event

import (
	"encoding/json"
	"slices"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
)

// minted reports whether the orchestrator itself made the event, on nobody's behalf: what it starts is trusted (EVT-21, EVT-23).
func minted(e db.KiciEvent) bool {
	return e.EventName == ScheduleFire || e.EventName == ScaleUp || e.EventName == ScaleDown
}

// trusted reports whether the event may reach the registration (EVT-21). An event that a person emitted in the organisation's own name
// needs no trust: nobody may do that whose token is limited to a source. One of a repository without a routing key has none.
func trusted(e db.KiciEvent, reg db.WorkflowRegistration, rows []db.CrossRepoTrust) bool {
	switch {
	case minted(e):
		return true
	case e.SourceRoutingKey != "" && e.SourceRoutingKey == reg.RoutingKey:
		return true
	case e.Emitter == EmitterOperator && e.SourceRoutingKey == "" && e.SourceRepo == "":
		return true
	case e.SourceRoutingKey == "":
		return false
	}
	return slices.ContainsFunc(rows, func(t db.CrossRepoTrust) bool {
		return t.Enabled && t.OrgID == e.OrgID && t.OrgID == reg.OrgID && t.SourceRepo == e.SourceRepo && t.SourceRoutingKey == e.SourceRoutingKey &&
			t.TargetRepo == reg.Repo && t.TargetRoutingKey == reg.RoutingKey && allows(t, e.EventName)
	})
}

// allows reports whether a trust row lets a name pass: null allows all, an empty list none, and so does one that cannot be read.
func allows(t db.CrossRepoTrust, name string) bool {
	if !t.EventNames.Valid {
		return true
	}
	var globs []string
	if err := json.Unmarshal([]byte(t.EventNames.String), &globs); err != nil {
		return false
	}
	return slices.ContainsFunc(globs, func(g string) bool { return workflow.MatchName(g, name) })
}
