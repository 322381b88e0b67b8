package scaler

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
)

var one = ScalerID{"one", "fake"}

func thing(id string, running bool) backend.Instance {
	return backend.Instance{AgentID: id, Running: running, Launch: json.RawMessage(`{"made":true}`), Detail: "exited with 3", Tail: []string{"oops"}}
}

// look is a view of scaler one with room for two launches at once.
func look(rows []Row, things ...backend.Instance) View {
	for i := range rows {
		if rows[i].Scaler == (ScalerID{}) {
			rows[i].Scaler = one
		}
	}
	return View{Now: 100_000, Rows: rows, Scalers: map[ScalerID]ScalerView{one: {Listed: true, Things: things, MaxSpawns: 2}}}
}

func TestReconcile(t *testing.T) {
	row := func(state ci.AgentState) []Row {
		return []Row{{ID: "a", State: state, RegisterBy: 200_000, Launch: json.RawMessage(`{"planned":true}`)}}
	}
	with := func(v View, change func(*View)) View { change(&v); return v }
	scaler := func(v View, change func(*ScalerView)) View {
		s := v.Scalers[one]
		change(&s)
		v.Scalers[one] = s
		return v
	}
	unstarted := thing("a", false)
	unstarted.Unstarted = true
	cases := []struct {
		name string
		view View
		want string // kind/reason/counted of the action on a, or of an orphan
		next int64
	}{
		{"requested starts", look(row(ci.AgentRequested)), "start", 0},
		{"XS-105 draining starts nothing", with(look(row(ci.AgentRequested)), func(v *View) { v.Closed = true }), "close/withdrawn", 0},
		{"not ready starts nothing", scaler(look(row(ci.AgentRequested)), func(s *ScalerView) { s.Refuses = "no host" }), "close/withdrawn", 0},
		{"scaler of nobody", look([]Row{{ID: "a", State: ci.AgentRequested, Scaler: ScalerID{"two", "fake"}}}), "close/withdrawn", 0},
		{"XS-22 queued behind the throttle is not pruned", with(look([]Row{
			{ID: "x", State: ci.AgentStarting}, {ID: "y", State: ci.AgentStarting}, {ID: "a", State: ci.AgentRequested, RegisterBy: 1},
		}), func(v *View) { v.Busy = map[string]Op{"x": OpCreate, "y": OpCreate} }), "", 0},
		{"starting while Create runs", with(look(row(ci.AgentStarting)), func(v *View) { v.Busy = map[string]Op{"a": OpCreate} }), "", 0},
		{"starting, made by a dead process", look(row(ci.AgentStarting), thing("a", true)), "booted", 0},
		{"starting, never made", look(row(ci.AgentStarting)), "start", 200_000},
		{"starting, half made", look(row(ci.AgentStarting), unstarted), "start", 200_000},
		{"starting, made and dead", look(row(ci.AgentStarting), thing("a", false)), "fail/launch-failed/counted", 0},
		{"starting, never made, draining", with(look(row(ci.AgentStarting)), func(v *View) { v.Closed = true }), "end/withdrawn", 200_000},
		{"starting, unknown", scaler(look(row(ci.AgentStarting)), func(s *ScalerView) { s.Listed = false }), "", 200_000},
		{"booting", look(row(ci.AgentBooting), thing("a", true)), "", 200_000},
		{"XS-26 never registers", with(look(row(ci.AgentBooting), thing("a", true)), func(v *View) { v.Now = 200_000 }), "fail/spawn-timeout", 0},
		{"XS-27 dies before registering", look(row(ci.AgentBooting), thing("a", false)), "fail/launch-failed/counted", 0},
		{"booting, left without a token", look(row(ci.AgentBooting), unstarted), "end/withdrawn", 0},
		{"vanishes before registering", look(row(ci.AgentBooting)), "fail/launch-failed/counted", 0},
		{"booting, listing failed", scaler(look(row(ci.AgentBooting)), func(s *ScalerView) { s.Listed = false }), "", 200_000},
		{"online", look(row(ci.AgentOnline), thing("a", true)), "", 0},
		{"online past its deadline", with(look(row(ci.AgentOnline), thing("a", true)), func(v *View) { v.Now = 300_000 }), "", 0},
		{"XS-35 dies after registering", look(row(ci.AgentOnline), thing("a", false)), "end/lost", 0},
		{"online, vanished", look(row(ci.AgentOnline)), "end/lost", 0},
		{"online, listing failed", scaler(look(row(ci.AgentOnline)), func(s *ScalerView) { s.Listed = false }), "", 0},
		{
			"dead, but its session may still hand something over",
			with(look(row(ci.AgentOnline), thing("a", false)), func(v *View) { v.Rows[0].Session = true; v.Dead = map[string]int64{"a": 99_000} }), "", 101_000,
		},
		{
			"dead for long with a session",
			with(look(row(ci.AgentOnline), thing("a", false)), func(v *View) { v.Rows[0].Session = true; v.Dead = map[string]int64{"a": 98_000} }), "end/lost", 0,
		},
		{"left after its job", with(look(row(ci.AgentDraining), thing("a", false)), func(v *View) { v.Rows[0].JobsDone = 1 }), "end/job-complete", 0},
		{"ending", look(row(ci.AgentEnding), thing("a", true)), "delete", 0},
		{"ending, nothing listed", look(row(ci.AgentEnding)), "delete", 0},
		{"XS-52 ending, being deleted", with(look(row(ci.AgentEnding)), func(v *View) { v.Busy = map[string]Op{"a": OpDelete} }), "", 0},
		{"XS-25 ending, still being made", with(look(row(ci.AgentEnding)), func(v *View) { v.Busy = map[string]Op{"a": OpCreate} }), "cancel", 0},
		{"XS-53 ending, Delete failed a moment ago", with(look(row(ci.AgentEnding)), func(v *View) { v.RetryAt = map[string]int64{"a": 100_500} }), "", 100_500},
		{"ending, scaler of nobody, nothing made", look([]Row{{ID: "a", State: ci.AgentEnding, Scaler: ScalerID{"two", "x"}, Launch: json.RawMessage(`{}`)}}), "close", 0},
		{"ending, scaler of nobody, something made", look([]Row{{ID: "a", State: ci.AgentEnding, Scaler: ScalerID{"two", "x"}, Launch: json.RawMessage(`{"pid":1}`)}}), "", 0},
		{"orphan", look(nil, thing("a", true)), "delete", 0},
		{"dead orphan", look(nil, thing("a", false)), "delete", 0},
		{"orphan, being deleted", with(look(nil, thing("a", true)), func(v *View) { v.Busy = map[string]Op{"a": OpDelete} }), "", 0},
	}
	names := map[ActionKind]string{
		ActStart: "start", ActBooted: "booted", ActFail: "fail", ActEnd: "end", ActClose: "close", ActCancel: "cancel", ActDelete: "delete",
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := Reconcile(c.view)
			got := ""
			for _, a := range p.Actions {
				if a.AgentID != "a" {
					continue
				}
				got = names[a.Kind]
				if a.Reason != "" && a.Kind != ActDelete {
					got += "/" + a.Reason
				}
				if a.Counted {
					got += "/counted"
				}
				if a.Kind == ActFail && a.Reason == ci.GoneLaunchFailed && len(c.view.Scalers[one].Things) > 0 && len(a.Tail) == 0 {
					t.Error("the failure has no tail")
				}
			}
			if got != c.want || p.Next != c.next {
				t.Errorf("got %q next %d, want %q next %d", got, p.Next, c.want, c.next)
			}
		})
	}
}

// The throttle serves the oldest first and never more at once than it may (MG-13, XS-22).
func TestXS22ThrottleIsFair(t *testing.T) {
	var rows []Row
	for i := range 5 {
		rows = append(rows, Row{ID: fmt.Sprint(i), State: ci.AgentRequested})
	}
	v := look(rows)
	v.Busy = map[string]Op{"0": OpCreate}
	v.Rows[0].State = ci.AgentStarting
	p := Reconcile(v)
	if len(p.Actions) != 1 || p.Actions[0].AgentID != "1" || p.Actions[0].Kind != ActStart {
		t.Errorf("got %+v", p.Actions)
	}
}

// world is a ledger and a host that the actions of Reconcile are applied to.
type world struct {
	t       *rapid.T
	now     int64
	rows    []Row
	things  map[string]backend.Instance
	retryAt map[string]int64
	fails   map[string]int // Delete fails that many more times
}

func (w *world) view() View {
	s := ScalerView{Listed: true, MaxSpawns: 2}
	for _, t := range w.things {
		s.Things = append(s.Things, t)
	}
	slices.SortFunc(s.Things, func(a, b backend.Instance) int { return compareIDs(a.AgentID, b.AgentID) })
	return View{Now: w.now, Rows: slices.Clone(w.rows), Scalers: map[ScalerID]ScalerView{one: s}, RetryAt: w.retryAt}
}

func compareIDs(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

func (w *world) index(id string) int {
	return slices.IndexFunc(w.rows, func(r Row) bool { return r.ID == id })
}

// apply does an action at once, as record and act do over time.
func (w *world) apply(a Action) {
	i := w.index(a.AgentID)
	if i >= 0 && a.Was != w.rows[i].State {
		return // the conditional write does not hold
	}
	switch a.Kind {
	case ActStart:
		switch rapid.IntRange(0, 3).Draw(w.t, "create") {
		case 0: // crash after the record, before Create
			w.rows[i].State = ci.AgentStarting
		case 1: // crash after Create
			w.rows[i].State = ci.AgentStarting
			w.things[a.AgentID] = thing(a.AgentID, true)
		case 2: // Create failed
			w.rows[i].State = ci.AgentEnding
		default:
			w.rows[i].State = ci.AgentBooting
			w.things[a.AgentID] = thing(a.AgentID, true)
		}
		w.rows[i].RegisterBy = w.now + 5
	case ActBooted:
		w.rows[i].State = ci.AgentBooting
	case ActFail, ActEnd:
		w.rows[i].State = ci.AgentEnding
	case ActClose:
		w.rows = slices.Delete(w.rows, i, i+1)
	case ActDelete:
		if w.fails[a.AgentID] > 0 {
			w.fails[a.AgentID]--
			w.retryAt[a.AgentID] = w.now + 2
			return
		}
		delete(w.things, a.AgentID)
		if i >= 0 {
			w.rows = slices.Delete(w.rows, i, i+1)
		}
	}
}

// From any mix of rows and things, looking again and again comes to rest, without a thing that has no row or a row that has no
// thing, and what was online with a running thing is untouched.
func TestReconcileConverges(t *testing.T) {
	states := []ci.AgentState{
		ci.AgentRequested, ci.AgentStarting, ci.AgentBooting, ci.AgentOnline, ci.AgentDraining, ci.AgentEnding,
	}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: 1000, things: map[string]backend.Instance{}, retryAt: map[string]int64{}, fails: map[string]int{}}
		keep := map[string]bool{}
		for i := range rapid.IntRange(0, 12).Draw(t, "agents") {
			id := fmt.Sprintf("agent-%02d", i)
			state := rapid.SampledFrom(states).Draw(t, "state")
			hasRow := rapid.Bool().Draw(t, "row")
			if hasRow {
				w.rows = append(w.rows, Row{ID: id, Scaler: one, State: state, RegisterBy: 1000 + rapid.Int64Range(-5, 5).Draw(t, "by"), Launch: json.RawMessage(`{"x":1}`)})
			}
			what := rapid.IntRange(0, 3).Draw(t, "thing")
			if what > 0 && (!hasRow || state != ci.AgentRequested) {
				inst := thing(id, what == 1)
				inst.Unstarted = what == 3
				w.things[id] = inst
			}
			if hasRow && what == 1 && (state == ci.AgentOnline || state == ci.AgentDraining) {
				keep[id] = true
			}
			w.fails[id] = rapid.IntRange(0, 3).Draw(t, "delete fails")
		}
		rounds := 0
		for ; rounds < 400; rounds++ {
			p := Reconcile(w.view())
			starts := 0
			for _, a := range p.Actions {
				if a.Kind == ActStart {
					starts++
				}
				w.apply(a)
			}
			if starts > 2 {
				t.Fatalf("%d launches at once", starts)
			}
			if len(p.Actions) == 0 && p.Next == 0 {
				break
			}
			w.now++
		}
		if rounds == 400 {
			t.Fatalf("no rest: rows %+v things %v", w.rows, w.things)
		}
		for _, r := range w.rows {
			if inst, ok := w.things[r.ID]; !ok || !inst.Running || r.State == ci.AgentEnding {
				t.Errorf("row %+v without a running thing", r)
			}
			delete(keep, r.ID)
		}
		for id := range w.things {
			if w.index(id) < 0 {
				t.Errorf("thing %s without a row", id)
			}
		}
		if len(keep) > 0 {
			t.Errorf("good agents were ended: %v", keep)
		}
	})
}

func TestReconcileIsDeterministic(t *testing.T) {
	v := look([]Row{{ID: "b", State: ci.AgentRequested}, {ID: "a", State: ci.AgentBooting}}, thing("z", true), thing("y", true), thing("x", false))
	v.Scalers[ScalerID{"two", "fake"}] = ScalerView{Listed: true, Things: []backend.Instance{thing("w", true)}}
	want := fmt.Sprintf("%+v", Reconcile(v))
	for range 50 {
		if got := fmt.Sprintf("%+v", Reconcile(v)); got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	}
}
