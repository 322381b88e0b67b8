package fleet

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// XC-118: a job of a run whose trust is not known gets none of the organisation's secrets.
func TestXC118NoTierNoSecrets(t *testing.T) {
	r := newRig(t)
	for i, tier := range []ci.TrustTier{ci.TierTrusted, ci.TierUnknown, ""} {
		id := managedID + strings.Repeat("x", i)
		p, _ := r.connect(r.managed(id, "linux"), register(id))
		plan := r.runs.Plan(run.New{
			OrgID: "default", RoutingKey: "generic:default:x", Repo: "acme/shop", TrustTier: tier, Event: ci.Event{Type: "push"},
			Workflow: lock.Workflow{Name: "ci", Jobs: []lock.Job{{Name: "a", RunsOn: lock.Selector{Labels: []string{"linux"}}, Steps: []lock.Step{{Run: "env"}}}}},
		})
		var runID string
		r.write(func(ctx context.Context, tx *store.Tx) (err error) {
			runID, _, err = r.runs.Insert(tx, plan)
			return err
		})
		jobs, err := r.st.Read().RunJobs(t.Context(), runID)
		if err != nil || len(jobs) != 1 || !r.assign(jobs[0].ID, runID, id) {
			t.Fatal("not assigned", err)
		}
		p.expect(wire.TypeJobDispatch, nil)
		code, data := p.request(http.MethodGet, "/api/v1/agent/jobs/"+jobs[0].ID, nil)
		var spec wire.JobSpec
		if err := json.Unmarshal(data, &spec); err != nil || code != http.StatusOK {
			t.Fatalf("tier %q: %d %s", tier, code, data)
		}
		if given := len(spec.Secrets) > 0; given != (tier == ci.TierTrusted) {
			t.Errorf("tier %q: secrets %v", tier, given)
		}
	}
}

// XS-44: a registration that cannot be looked up is refused with a code on which the agent comes back.
func TestXS44LookupFails(t *testing.T) {
	r := newRig(t)
	token := r.managed(managedID, "linux")
	authenticated := r.dial()
	authenticated.send(wire.TypeAuthRequest, wire.AuthRequest{Token: token, ProtocolVersion: wire.ProtocolVersion})
	authenticated.expect(wire.TypeAuthSuccess, nil)
	fresh := r.dial()
	if err := r.st.Close(); err != nil {
		t.Fatal(err)
	}
	authenticated.send(wire.TypeRegister, register(managedID))
	fresh.send(wire.TypeAuthRequest, wire.AuthRequest{Token: token, ProtocolVersion: wire.ProtocolVersion})
	for name, p := range map[string]*peer{"before its registration": authenticated, "before its token": fresh} {
		if code := p.closeCode(); code != wire.CloseScalerState {
			t.Errorf("store lost %s: close code %d, want %d", name, code, wire.CloseScalerState)
		}
	}
	if n := r.fleet.Connected(); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// XS-47: sockets that close in the middle of a registration leave no session, and their agent keeps its grace.
func TestXS47ClosedWhileRegistering(t *testing.T) { onBoth(t, closedWhileRegistering) }

func closedWhileRegistering(t *testing.T, r *rig) {
	token := r.managed(managedID, "linux")
	for i := range 8 {
		p := r.dial()
		p.send(wire.TypeAuthRequest, wire.AuthRequest{Token: token, ProtocolVersion: wire.ProtocolVersion})
		if i%2 == 0 {
			p.expect(wire.TypeAuthSuccess, nil)
		}
		p.send(wire.TypeRegister, register(managedID))
		p.drop()
	}
	r.eventually("no socket is left", func() bool { return r.fleet.sockets.Load() == 0 })
	if row := r.agent(managedID); r.fleet.Connected() != 0 || row.InstanceID != "" || row.State == "ending" || row.State == "gone" {
		t.Errorf("%d sessions, row %+v", r.fleet.Connected(), row)
	}
	if _, ack := r.connect(token, register(managedID)); ack.AgentID != managedID {
		t.Errorf("ack %+v", ack)
	}
	r.eventually("the agent has its session", func() bool { return r.fleet.Connected() == 1 })
}

// XC-79: a server that was away from the database for so long that another one took its agents' links sends its agents to connect again; the
// job goes on. Its own late heartbeat takes nothing from itself.
func TestXC79HeldForDead(t *testing.T) { onBoth(t, heldForDead) }

func heldForDead(t *testing.T, r *rig) {
	p, d, token := dispatched(r)
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, nil)
	for range 2 { // it has no row that says that it lives
		if err := r.fleet.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	row := r.agent(managedID)
	if row.InstanceID != instance || r.jobStatus(d.JobID) != "running" {
		t.Fatalf("it took its own agent's link: %+v, job %s", row, r.jobStatus(d.JobID))
	}
	r.write(func(ctx context.Context, tx *store.Tx) error { // another server's sweep
		_, err := r.fleet.loseLink(ctx, tx, managedID, row.SessionID)
		return err
	})
	if r.jobStatus(d.JobID) != "recovering" {
		t.Fatalf("job %s", r.jobStatus(d.JobID))
	}
	if err := r.fleet.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := p.closeCode(); code != wire.CloseHeartbeat {
		t.Errorf("close code %d: an agent does not come back on that", code)
	}
	back := register(managedID)
	back.InFlightJobs = []wire.InFlight{{JobID: d.JobID, Attempt: d.Attempt}}
	if _, ack := r.connect(token, back); ack.AgentID != managedID || len(ack.Abandon) > 0 {
		t.Errorf("ack %+v", ack)
	}
	r.eventually("the job goes on", func() bool { return r.jobStatus(d.JobID) == "running" })
}

// A session that ended while the store was away, so that its row does not say so, is noticed.
func TestRowWithoutASession(t *testing.T) {
	r := newRig(t)
	r.connect(r.managed(managedID, "linux"), register(managedID))
	s := r.fleet.session(managedID)
	r.fleet.mu.Lock()
	delete(r.fleet.byAgent, managedID)
	r.fleet.mu.Unlock()
	defer func() { _ = s.conn.CloseNow() }()
	for look := range 2 {
		if row := r.agent(managedID); row.SessionID != s.id {
			t.Fatalf("look %d: it may just be connecting: %+v", look, row)
		}
		if err := r.fleet.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if row := r.agent(managedID); row.SessionID != "" {
		t.Errorf("%+v", row)
	}
}

// XC-79, XC-80: a coordinator that starts takes only its own past sessions for lost; a sibling's when that one's heartbeat is stale.
func TestXC79OnlyItsOwnRows(t *testing.T) { onBoth(t, onlyItsOwnRows) }

func onlyItsOwnRows(t *testing.T, r *rig) {
	p, d, _ := dispatched(r)
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, nil)
	beat := func(ago time.Duration) {
		r.write(func(ctx context.Context, tx *store.Tx) error {
			return tx.StartInstance(ctx, db.StartInstanceParams{InstanceID: instance, Name: "one", Now: tx.Now() - ago.Milliseconds()})
		})
	}
	sibling := New(Deps{
		Store: r.st, InstanceID: "node-2", Reports: runReports(r.runs), Losses: r.runs, Logs: logFiles{r.logs}, Contexts: r.runs,
		Secrets: &r.secrets, Clones: fakeClones{}, Metrics: obs.NewMetrics(), Env: r.env(), Log: obs.Discard(), Settings: DefaultSettings(),
	})
	beat(0)
	if err := sibling.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if row := r.agent(managedID); row.InstanceID != instance || r.jobStatus(d.JobID) != "running" {
		t.Errorf("the sibling's start took %+v, job %s", row, r.jobStatus(d.JobID))
	}
	beat(ci.InstanceTimeout - 10*time.Second)
	if err := sibling.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if row := r.agent(managedID); row.InstanceID != instance {
		t.Errorf("a coordinator that is alive for placement lost its agents: %+v", row)
	}
	beat(ci.InstanceTimeout + time.Second)
	if err := sibling.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if row := r.agent(managedID); row.InstanceID != "" || r.jobStatus(d.JobID) != "recovering" {
		t.Errorf("nobody noticed the dead coordinator: %+v, job %s", row, r.jobStatus(d.JobID))
	}
}
