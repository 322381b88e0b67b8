package dispatch

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// TestModel does to the ledger whatever agents, nodes, operators and crashes do, in any order. After every move it checks that no
// job and no agent is held twice, that what has ended stays as it ended, and that caps hold; at the end, that every job
// and every run has ended and said so once.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{world: &world{t: rt}, rt: rt, ended: map[string]string{}}
		m.now.Store(start)
		d := storetest.SQLiteDatabase(t)
		d.Config.Now = m.time
		st, err := store.Open(ctx, d.Config)
		if err != nil {
			rt.Fatal(err)
		}
		defer st.Close()
		m.open(st)
		m.scaler("vm", 3, "linux")
		m.static("box", "linux")
		rt.Repeat(map[string]func(*rapid.T){
			"":         func(*rapid.T) { m.check() },
			"insert":   func(*rapid.T) { m.insertRun() },
			"place":    func(*rapid.T) { m.place() },
			"duties":   func(*rapid.T) { m.duties() },
			"register": func(*rapid.T) { m.registerOne() },
			"report":   func(*rapid.T) { m.report() },
			"late":     func(*rapid.T) { m.late() },
			"reject":   func(*rapid.T) { m.reject() },
			"lose":     func(*rapid.T) { m.lose() },
			"return":   func(*rapid.T) { m.comeBack() },
			"die":      func(*rapid.T) { m.die() },
			"delete":   func(*rapid.T) { m.deleteEnding() },
			"cancel":   func(*rapid.T) { m.cancel() },
			"groups":   func(*rapid.T) { m.groups() },
			"time":     func(*rapid.T) { m.wait(rapid.SampledFrom(steps).Draw(rt, "wait")) },
			"crash":    func(*rapid.T) { m.p, m.w = m.d.placer(m.term), m.d.warden(m.term) },
		})
		m.drain()
	})
}

var steps = []time.Duration{time.Second, 11 * time.Second, 61 * time.Second, 121 * time.Second, 10 * time.Minute}

// model is a world in which things happen.
type model struct {
	*world
	rt    *rapid.T
	runs  []string
	ended map[string]string // job id → the row's status when it ended
}

func (m *model) wait(d time.Duration) {
	m.pass(d)
	m.write(func(tx *store.Tx) error { _, err := tx.BeatInstance(ctx, tx.Now(), "n1"); return err })
}

func (m *model) insertRun() {
	jobs := []lock.Job{job("a", "linux"), job("b", "linux"), job("c", "linux")}
	edge := rapid.SampledFrom([][]ci.JobStatus{{ci.JobSuccess}, ci.TerminalJobStatuses, {ci.JobFailed}}).Draw(m.rt, "edge")
	jobs[1].Needs = []lock.Need{{Job: "a", RunOn: edge}}
	jobs[2].Needs = []lock.Need{{Job: "a", RunOn: ci.TerminalJobStatuses}, {Job: "b", RunOn: ci.TerminalJobStatuses}}
	if rapid.Bool().Draw(m.rt, "fan-out") {
		jobs[0].Matrix = &lock.Matrix{Dimensions: map[string][]json.RawMessage{"n": {json.RawMessage("1"), json.RawMessage("2"), json.RawMessage("3")}}, Order: []string{"n"}}
		jobs[0].MaxParallel, jobs[0].FailFast = rapid.IntRange(0, 2).Draw(m.rt, "window"), rapid.Bool().Draw(m.rt, "fail-fast")
	}
	if rapid.Bool().Draw(m.rt, "job in a group") {
		jobs[rapid.IntRange(0, 1).Draw(m.rt, "which")].Concurrency = &lock.Concurrency{Group: "g", Max: rapid.IntRange(1, 2).Draw(m.rt, "max"), CancelInProgress: rapid.Bool().Draw(m.rt, "cancels")}
	}
	jobs = jobs[:rapid.IntRange(1, 3).Draw(m.rt, "jobs")]
	if rapid.Bool().Draw(m.rt, "run in a group") {
		m.runs = append(m.runs, m.insertIn("g", jobs...))
		return
	}
	m.runs = append(m.runs, m.insert(jobs...))
}

// pick chooses one of the agents that ok likes.
func (m *model) pick(ok func(db.Agent) bool) (db.Agent, bool) {
	var some []db.Agent
	for _, a := range m.agents() {
		if ok(a) {
			some = append(some, a)
		}
	}
	if len(some) == 0 {
		return db.Agent{}, false
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(m.rt, "agent")], true
}

func connected(a db.Agent) bool {
	return a.SessionID != "" && (a.State == "online" || a.State == "draining")
}

func (m *model) registerOne() {
	if a, ok := m.pick(func(a db.Agent) bool { return a.State == "requested" }); ok {
		m.register(a.ID, "linux")
	}
}

// holding is the job of an agent's open assignment.
func (m *model) holding(agent string) (db.ExecutionJob, bool) {
	row, err := m.st.Read().FleetOpenAssignment(ctx, agent)
	if err != nil {
		return db.ExecutionJob{}, false
	}
	rows, err := m.st.Read().WholeJobs(ctx, row.RunID)
	if err != nil {
		m.rt.Fatal(err)
	}
	for _, j := range rows {
		if j.ID == row.JobID {
			return j, true
		}
	}
	return db.ExecutionJob{}, false
}

func (m *model) report() {
	a, ok := m.pick(func(a db.Agent) bool { _, has := m.holding(a.ID); return has && connected(a) })
	if !ok {
		return
	}
	j, _ := m.holding(a.ID)
	if !j.StartedAt.Valid {
		m.started(j)
		return
	}
	m.finish(j, rapid.SampledFrom([]ci.JobStatus{ci.JobSuccess, ci.JobFailed, ci.JobCancelled}).Draw(m.rt, "status"))
}

// late repeats a report of some assignment there ever was.
func (m *model) late() {
	var all []db.Assignment
	for _, j := range m.allJobs() {
		all = append(all, m.assignments(j.ID)...)
	}
	if len(all) == 0 {
		return
	}
	a := all[rapid.IntRange(0, len(all)-1).Draw(m.rt, "assignment")]
	if !a.EndedAt.Valid {
		return // report's business
	}
	m.write(func(tx *store.Tx) error {
		if ok, err := m.world.runs.Started(tx, wire.JobStatus{JobID: a.JobID, Attempt: int(a.Attempt)}, a.AgentID); ok || err != nil {
			return errors.Join(errors.New("a start of an ended assignment was taken"), err)
		}
		ok, err := m.world.runs.Finish(tx, run.End{JobID: a.JobID, Attempt: int(a.Attempt), AgentID: a.AgentID, Status: ci.JobFailed})
		if ok || err != nil {
			return errors.Join(errors.New("an end of an ended assignment was taken"), err)
		}
		return nil
	})
}

func (m *model) reject() {
	a, ok := m.pick(func(a db.Agent) bool { _, has := m.holding(a.ID); return has && connected(a) })
	if !ok {
		return
	}
	j, _ := m.holding(a.ID)
	count := rapid.Bool().Draw(m.rt, "count")
	m.write(func(tx *store.Tx) error {
		_, err := m.world.runs.Requeue(tx, j.ID, int(j.Attempt), "rejected: busy", count)
		return err
	})
}

func (m *model) lose() {
	a, ok := m.pick(connected)
	if !ok {
		return
	}
	m.loseLink(a.ID)
	if j, has := m.holding(a.ID); has {
		m.write(func(tx *store.Tx) error {
			_, err := m.world.runs.Recover(tx, j.ID, int(j.Attempt), tx.Now()+60_000)
			return err
		})
	}
}

func (m *model) comeBack() {
	a, ok := m.pick(func(a db.Agent) bool { return a.LinkLostAt.Valid && (a.State == "online" || a.State == "draining") })
	if ok {
		m.returns(a)
	}
}

func (m *model) returns(a db.Agent) {
	m.write(func(tx *store.Tx) error {
		if err := m.admitAs(tx, a.ID, a.State); err != nil {
			return err
		}
		row, err := tx.FleetOpenAssignment(ctx, a.ID)
		if err != nil {
			return nil //nolint:nilerr // it has none
		}
		_, err = m.world.runs.Recovered(tx, row.JobID, int(row.Attempt), a.ID)
		return err
	})
}

func (m *model) admitAs(tx *store.Tx, id, state string) error {
	p := db.FleetAdmitAgentParams{ID: id, Was: state, State: state, Labels: `["linux"]`, MandatoryLabels: "[]", InstanceID: "n1", SessionID: "s-" + id}
	p.Now.Int64, p.Now.Valid = tx.Now(), true
	_, err := tx.FleetAdmitAgent(ctx, p)
	return err
}

func (m *model) die() {
	a, ok := m.pick(func(a db.Agent) bool { return a.Type != "static" && a.State != "ending" && a.State != "gone" })
	if !ok {
		return
	}
	m.write(func(tx *store.Tx) error {
		_, err := tx.NodeEndAgent(ctx, db.NodeEndAgentParams{ID: a.ID, State: a.State, GoneReason: ci.GoneLost, Now: tx.Now()})
		return err
	})
}

// deleteEnding is the node's loop, and fleet's for the static agent.
func (m *model) deleteEnding() {
	for _, a := range m.agents() {
		switch {
		case a.State == "ending":
			m.write(func(tx *store.Tx) error { _, err := tx.NodeAgentGone(ctx, tx.Now(), a.ID); return err })
		case a.Type == "static" && a.State == "gone":
			m.static(a.ID, "linux")
		case a.State == "draining":
			if _, has := m.holding(a.ID); !has {
				m.write(func(tx *store.Tx) error {
					_, err := tx.FleetEndAgent(ctx, db.FleetEndAgentParams{ID: a.ID, State: "ending", Reason: ci.GoneJobComplete, Now: tx.Now()})
					return err
				})
			}
		}
	}
}

func (m *model) cancel() {
	if len(m.runs) == 0 {
		return
	}
	id := m.runs[rapid.IntRange(0, len(m.runs)-1).Draw(m.rt, "run")]
	_, err := m.world.runs.Cancel(ctx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann", Force: rapid.Bool().Draw(m.rt, "force")})
	if err != nil && !errors.Is(err, run.ErrTerminal) {
		m.rt.Fatal(err)
	}
}

func (m *model) allJobs() []db.ExecutionJob {
	var all []db.ExecutionJob
	for _, id := range m.runs {
		rows, err := m.st.Read().WholeJobs(ctx, id)
		if err != nil {
			m.rt.Fatal(err)
		}
		all = append(all, rows...)
	}
	return all
}

func (m *model) check() {
	for _, j := range m.allJobs() {
		m.checkJob(j)
	}
	for _, id := range m.runs {
		open := false
		rows, _ := m.st.Read().WholeJobs(ctx, id)
		for _, j := range rows {
			open = open || !j.FinishedAt.Valid
		}
		if r := m.run(id); r.FinishedAt.Valid == open || ci.RunStatus(r.Status).Terminal() == open {
			m.rt.Fatalf("run is %s while some job is open: %v", r.Status, open)
		}
	}
	m.checkGroups()
	managed := 0
	for _, a := range m.agents() {
		if a.Type != "static" && a.State != "gone" {
			managed++
		}
	}
	if managed > 3 {
		m.rt.Fatalf("%d agents of a scaler that may have 3", managed)
	}
}

// checkGroups: no owner of a place shares its group with more than its workflow allows, and nobody waits for nobody.
func (m *model) checkGroups() {
	active, waiting, smallest := 0, 0, 100
	for _, id := range m.runs {
		rows, err := m.st.Read().OpenSlotsOfRun(ctx, id)
		if err != nil {
			m.rt.Fatal(err)
		}
		if m.run(id).FinishedAt.Valid && len(rows) > 0 {
			m.rt.Fatalf("an ended run has places: %+v", rows)
		}
		for _, s := range rows {
			switch {
			case s.State == "active":
				active, smallest = active+1, min(smallest, int(s.Max))
			case s.SupersededBy == "":
				waiting++
			}
		}
	}
	if active > smallest || waiting > 0 && active == 0 {
		m.rt.Fatalf("%d hold the group of %d, %d wait", active, smallest, waiting)
	}
}

func (m *model) checkJob(j db.ExecutionJob) {
	open := 0
	for _, a := range m.assignments(j.ID) {
		if !a.EndedAt.Valid {
			open++
			if a.AgentID != j.AgentID.String || a.Attempt != j.Attempt {
				m.rt.Fatalf("job %s of %v, attempt %d, is assigned to %s, attempt %d", j.Name, j.AgentID, j.Attempt, a.AgentID, a.Attempt)
			}
		}
	}
	terminal := ci.JobStatus(j.Status).Terminal()
	want := 0
	if !terminal && j.AgentID.Valid {
		want = 1
	}
	if open != want || terminal != j.FinishedAt.Valid {
		m.rt.Fatalf("job %s is %s with agent %v and %d open assignments", j.Name, j.Status, j.AgentID, open)
	}
	if !terminal {
		return
	}
	if before, was := m.ended[j.ID]; was && before != j.Status {
		m.rt.Fatalf("job %s ended as %s and is %s", j.Name, before, j.Status)
	}
	m.ended[j.ID] = j.Status
}

func (m *model) anyOpen() bool {
	for _, id := range m.runs {
		if !m.run(id).FinishedAt.Valid {
			return true
		}
	}
	return false
}

// drain lets the world be kind: agents register, return and work, the node deletes. Everything must end.
func (m *model) drain() {
	for range 200 {
		if !m.anyOpen() {
			break
		}
		m.deleteEnding()
		for _, a := range m.agents() {
			switch {
			case a.State == "requested":
				m.register(a.ID, "linux")
			case a.LinkLostAt.Valid && a.Type == "static" && a.State == "online":
				m.returns(a)
			}
		}
		m.place()
		for _, a := range m.agents() {
			if j, has := m.holding(a.ID); has && connected(a) {
				if !j.StartedAt.Valid {
					m.started(j)
				}
				m.finish(j, ci.JobSuccess)
			}
		}
		m.duties()
		m.groups()
		m.check()
		m.wait(61 * time.Second)
	}
	for _, id := range m.runs {
		if r := m.run(id); !ci.RunStatus(r.Status).Terminal() {
			m.rt.Fatalf("run %s never ends: jobs %+v", r.Status, m.allJobs())
		}
		rows, err := m.st.Read().EventsOfRun(ctx, id)
		if err != nil {
			m.rt.Fatal(err)
		}
		jobs, _ := m.st.Read().WholeJobs(ctx, id)
		if len(rows) != len(jobs)+1 {
			m.rt.Fatalf("%d events for %d jobs and their run", len(rows), len(jobs))
		}
	}
}
