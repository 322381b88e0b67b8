package scaler

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// View is all that Reconcile looks at: the ledger's live rows of this node beside what its backends find on the host.
type View struct {
	Now     int64
	Closed  bool // draining or shutting down: nothing new is started (MG-2)
	Rows    []Row
	Scalers map[ScalerID]ScalerView
	Busy    map[string]Op    // work in progress, by agent
	RetryAt map[string]int64 // not before, after a failed Delete, by agent
	Dead    map[string]int64 // since when an agent's thing is known to be dead
}

// ScalerID names a scaler's backend. The type belongs to it: a name that changed its type has two until the old agents are gone.
type ScalerID struct{ Name, Type string }

func (s ScalerID) compare(o ScalerID) int {
	return cmp.Or(cmp.Compare(s.Name, o.Name), cmp.Compare(s.Type, o.Type))
}

// ScalerView is one scaler as the node has it.
type ScalerView struct {
	Refuses   string // why it starts nothing: not ready, retiring; '' = it starts
	Listed    bool   // Things is complete; a failed listing proves nothing
	Things    []backend.Instance
	MaxSpawns int
}

// Row is a live row of the ledger. Rows are ordered by when they were requested.
type Row struct {
	ID         string
	Scaler     ScalerID
	State      ci.AgentState
	Launch     json.RawMessage
	RegisterBy int64 // 0 = not set
	Registered bool
	Session    bool // some coordinator holds its session
	JobsDone   int64
}

// Op is a kind of work in progress.
type Op int

// The kinds of work.
const (
	OpCreate Op = iota + 1
	OpDelete
)

// ActionKind says what an Action does.
type ActionKind int

// The actions. Each but ActCancel and ActDelete of an orphan is recorded by a conditional write before anything is done.
const (
	ActStart  ActionKind = iota + 1 // mint a token, row → starting, then Create
	ActBooted                       // row → booting with what List knows
	ActFail                         // failed provision: row → ending, failure recorded; Counted arms the back-off
	ActEnd                          // row → ending, no failure
	ActClose                        // nothing was ever made: row → gone
	ActCancel                       // stop a Create whose row has ended
	ActDelete                       // Delete what is left, then row → gone; without a row only Delete
)

// Action is one thing to do.
type Action struct {
	Kind    ActionKind
	AgentID string
	Scaler  ScalerID
	Was     ci.AgentState // the state it was decided in; '' for an orphan
	Launch  json.RawMessage
	Reason  string // gone_reason
	Error   string // for people
	Tail    []string
	Counted bool
	Holds   []backend.Resource // of an orphan
}

// Plan is what Reconcile wants done, and when it wants to look again at the latest (0 = no need).
type Plan struct {
	Actions []Action
	Next    int64
}

// lostGrace lets a dead agent's session hand over what it had already sent before the agent is declared lost.
const lostGrace = 2000

// Reconcile compares rows with things, in both directions. It is pure. Applied again and again it comes to rest with a thing
// for every row and a row for every thing.
func Reconcile(v View) Plan {
	r := reconciler{View: v, spawning: map[ScalerID]int{}, rows: map[string]bool{}, things: map[string]backend.Instance{}}
	for _, row := range v.Rows {
		r.rows[row.ID] = true
		if v.Busy[row.ID] == OpCreate {
			r.spawning[row.Scaler]++
		}
	}
	for _, s := range v.Scalers {
		for _, t := range s.Things {
			r.things[t.AgentID] = t
		}
	}
	for _, row := range v.Rows {
		r.row(row)
	}
	r.orphans()
	return r.plan
}

type reconciler struct {
	View
	spawning map[ScalerID]int
	rows     map[string]bool
	things   map[string]backend.Instance
	plan     Plan
}

func (r *reconciler) do(row Row, a Action) {
	a.AgentID, a.Scaler, a.Was = row.ID, row.Scaler, row.State
	if a.Launch == nil {
		a.Launch = row.Launch
	}
	r.plan.Actions = append(r.plan.Actions, a)
}

func (r *reconciler) later(at int64) {
	if at > r.Now && (r.plan.Next == 0 || at < r.plan.Next) {
		r.plan.Next = at
	}
}

func (r *reconciler) row(row Row) {
	s, known := r.Scalers[row.Scaler]
	thing, found := r.things[row.ID]
	switch row.State {
	case ci.AgentRequested:
		r.requested(row, s, known)
	case ci.AgentStarting:
		r.starting(row, s, thing, found)
	case ci.AgentBooting:
		r.booting(row, s, thing, found)
	case ci.AgentOnline, ci.AgentDraining:
		r.online(row, s, thing, found)
	case ci.AgentEnding:
		r.ending(row, known)
	}
}

func (r *reconciler) requested(row Row, s ScalerView, known bool) {
	switch {
	case !known:
		r.do(row, Action{Kind: ActClose, Reason: ci.GoneWithdrawn, Error: "the scaler is not configured on this node"})
	case r.Closed:
		r.do(row, Action{Kind: ActClose, Reason: ci.GoneWithdrawn, Error: "the node is draining"})
	case s.Refuses != "":
		r.do(row, Action{Kind: ActClose, Reason: ci.GoneWithdrawn, Error: s.Refuses})
	default:
		r.start(row, s)
	}
}

// start begins a launch if the throttle has a permit; rows come oldest first, so permits go in that order (MG-13).
func (r *reconciler) start(row Row, s ScalerView) {
	if r.spawning[row.Scaler] < s.MaxSpawns {
		r.spawning[row.Scaler]++
		r.do(row, Action{Kind: ActStart})
	}
}

func (r *reconciler) starting(row Row, s ScalerView, thing backend.Instance, found bool) {
	switch {
	case r.Busy[row.ID] == OpCreate:
		// its own deadline ends it
	case found && thing.Running:
		r.do(row, Action{Kind: ActBooted, Launch: thing.Launch})
	case found && !thing.Unstarted:
		r.fail(row, thing)
	case !s.Listed:
		r.overdue(row)
	case r.overdue(row):
	case r.Closed || s.Refuses != "":
		r.do(row, Action{Kind: ActEnd, Reason: ci.GoneWithdrawn, Error: "the launch was interrupted"})
	default: // recorded, but never made: the process that was to make it died
		r.start(row, s)
	}
}

func (r *reconciler) booting(row Row, s ScalerView, thing backend.Instance, found bool) {
	switch {
	case found && thing.Running, !found && !s.Listed:
		r.overdue(row)
	case thing.Unstarted: // taken for running when its launch was interrupted; it left without a token, and that is nobody's failure
		r.do(row, Action{Kind: ActEnd, Reason: ci.GoneWithdrawn, Error: "the launch was interrupted", Launch: thing.Launch})
	default:
		r.fail(row, thing)
	}
}

// overdue ends an agent that did not register in time (MG-24, MG-26).
func (r *reconciler) overdue(row Row) bool {
	if row.RegisterBy == 0 || r.Now < row.RegisterBy {
		r.later(row.RegisterBy)
		return false
	}
	r.do(row, Action{Kind: ActFail, Reason: ci.GoneSpawnTimeout, Error: "the agent did not register in time"})
	return true
}

// fail ends an agent that died before it registered (MG-19).
func (r *reconciler) fail(row Row, thing backend.Instance) {
	text := "the agent died before it registered"
	if thing.Detail != "" {
		text += ": " + thing.Detail
	}
	r.do(row, Action{Kind: ActFail, Reason: ci.GoneLaunchFailed, Error: text, Tail: thing.Tail, Launch: thing.Launch, Counted: true})
}

// online ends an agent whose thing is dead: a plain disconnect, never a failed provision (XS-35).
func (r *reconciler) online(row Row, s ScalerView, thing backend.Instance, found bool) {
	if found && thing.Running || !found && !s.Listed {
		return
	}
	since, known := r.Dead[row.ID]
	if !known {
		since = r.Now
	}
	if row.Session && r.Now < since+lostGrace {
		r.later(since + lostGrace)
		return
	}
	a := Action{Kind: ActEnd, Reason: ci.GoneLost, Error: "the agent's process is gone", Launch: thing.Launch}
	if !found {
		a.Error = "nothing of the agent is there any more: somebody else has removed it"
	}
	if thing.Detail != "" {
		a.Error += ": " + thing.Detail
	}
	if row.JobsDone > 0 {
		a.Reason, a.Error = ci.GoneJobComplete, ""
	}
	r.do(row, a)
}

func (r *reconciler) ending(row Row, known bool) {
	switch r.Busy[row.ID] {
	case OpCreate:
		r.do(row, Action{Kind: ActCancel})
		return
	case OpDelete:
		return
	}
	if at := r.RetryAt[row.ID]; r.Now < at {
		r.later(at)
		return
	}
	if !known { // without a backend only a row that never had a thing can be closed
		if len(row.Launch) == 0 || string(row.Launch) == noLaunch {
			r.do(row, Action{Kind: ActClose})
		}
		return
	}
	launch := row.Launch
	if t, found := r.things[row.ID]; found && t.Launch != nil {
		launch = t.Launch
	}
	r.do(row, Action{Kind: ActDelete, Launch: launch})
}

// noLaunch is agents.launch before Plan.
const noLaunch = "{}"

// orphans ends what carries our name but has no row. What is only known to be this node's may be found by several scalers; one of them ends
// it.
func (r *reconciler) orphans() {
	taken := map[string]bool{}
	for _, id := range slices.SortedFunc(maps.Keys(r.Scalers), ScalerID.compare) {
		for _, t := range r.Scalers[id].Things {
			if r.rows[t.AgentID] || r.Busy[t.AgentID] != 0 || taken[t.AgentID] {
				continue
			}
			taken[t.AgentID] = true
			if at := r.RetryAt[t.AgentID]; r.Now < at {
				r.later(at)
				continue
			}
			r.plan.Actions = append(r.plan.Actions, Action{
				Kind: ActDelete, AgentID: t.AgentID, Scaler: id, Launch: t.Launch, Reason: "no row", Holds: t.Holds,
			})
		}
	}
	slices.SortStableFunc(r.plan.Actions, compareActions)
}

// compareActions puts orphans last, by id, and leaves the order of rows.
func compareActions(a, b Action) int {
	ao, bo := a.Was == "", b.Was == ""
	switch {
	case ao && bo && a.AgentID < b.AgentID, !ao && bo:
		return -1
	case ao && bo && a.AgentID > b.AgentID, ao && !bo:
		return 1
	}
	return 0
}
