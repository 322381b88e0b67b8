package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

const managedID = "scaler-bare-metal-0001"

// dispatched connects a managed agent and gives it a job.
func dispatched(r *rig) (p *peer, d wire.JobDispatch, token string) {
	r.t.Helper()
	token = r.managed(managedID, "linux")
	p, _ = r.connect(token, register(managedID))
	runID, ids := r.jobs(1)
	if !r.assign(ids[0], runID, managedID) {
		r.t.Fatal("not assigned")
	}
	p.expect(wire.TypeJobDispatch, &d)
	return p, d, token
}

// One job from dispatch to its end, as an agent sees it.
func TestWholeJob(t *testing.T) { onBoth(t, wholeJob) }

func wholeJob(t *testing.T, r *rig) {
	p, d, _ := dispatched(r)
	p.send(wire.TypeJobAck, wire.JobAck{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt})
	r.eventually("acked", func() bool { return r.assignment(d.JobID, 1).State == "acked" })

	code, data := p.request(http.MethodGet, "/api/v1/agent/jobs/"+d.JobID, nil)
	var spec wire.JobSpec
	if err := json.Unmarshal(data, &spec); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, data)
	}
	if sum := sha256.Sum256(spec.Job); hex.EncodeToString(sum[:]) != d.Digest {
		t.Error("the digest is of other bytes than the description has")
	}
	var kici map[string]any
	_ = json.Unmarshal(spec.Contexts.Kici, &kici)
	if kici["event_name"] != "push" || kici["ref_name"] != "main" || kici["repository"] != "acme/shop" {
		t.Errorf("kici context %v", kici)
	}
	if spec.Env["A"] != "flow" || spec.Env["B"] != "job" || spec.Secrets["TOKEN"] != "s3cret" || spec.GraceMs != 10_000 {
		t.Errorf("spec %s", data)
	}
	if c := spec.Checkout; c == nil || c.SHA != strings.Repeat("a", 40) || c.Password != "p" || c.SSHKey != "k" || c.KnownHosts != "h" {
		t.Errorf("checkout %+v", spec.Checkout)
	}

	p.status(d, 1, "running")
	var ack wire.ReportAck
	p.expect(wire.TypeReportAck, &ack)
	if ack.Seq != 1 || ack.Gone || r.jobStatus(d.JobID) != "running" {
		t.Errorf("%+v, job %s", ack, r.jobStatus(d.JobID))
	}
	zero := 0
	p.send(wire.TypeStepStatus, wire.StepStatus{Seq: 2, RunID: d.RunID, JobID: d.JobID, Attempt: 1, StepIndex: 1, Name: "x", Status: "running"})
	p.send(wire.TypeStepStatus, wire.StepStatus{Seq: 3, RunID: d.RunID, JobID: d.JobID, Attempt: 1, StepIndex: 1, Name: "x", Status: "success", ExitCode: &zero})
	for ack.Seq < 3 {
		p.expect(wire.TypeReportAck, &ack)
	}
	path := fmt.Sprintf("/api/v1/agent/jobs/%s/logs?step=1&attempt=1&offset=", d.JobID)
	line := `{"ts":1,"level":"stdout","msg":"hello"}` + "\n"
	if code, data := p.request(http.MethodPost, path+"0", strings.NewReader(line)); code != http.StatusOK {
		t.Errorf("log: %d %s", code, data)
	}
	if code, data := p.request(http.MethodPost, path+"9999", strings.NewReader(line)); code != http.StatusConflict || !strings.Contains(string(data), fmt.Sprint(len(line))) {
		t.Errorf("log with a hole: %d %s", code, data)
	}
	if code, _ := p.request(http.MethodPost, path+"0", bytes.NewReader(make([]byte, wire.MaxLogChunkBytes+1))); code == http.StatusOK {
		t.Error("a body above the bound was accepted")
	}
	p.status(d, 4, "success")
	for ack.Seq < 4 {
		p.expect(wire.TypeReportAck, &ack)
	}
	p.status(d, 4, "success") // the acknowledgement got lost: repeated
	p.expect(wire.TypeReportAck, &ack)
	if ack.Gone {
		t.Error("a repeated final report is not somebody else's job")
	}
	if r.jobStatus(d.JobID) != "success" {
		t.Errorf("job %s", r.jobStatus(d.JobID))
	}
	lines, _, _ := r.logs.Read(t.Context(), logs.Job{RunID: d.RunID, JobID: d.JobID, Attempt: 1}, 1, 0, 0)
	if len(lines) != 1 || lines[0].Msg != "hello" {
		t.Errorf("log %v", lines)
	}
	p.leave()
	r.eventually("ending", func() bool { return r.agent(managedID).State == "ending" })
	if row := r.agent(managedID); row.GoneReason != ci.GoneJobComplete {
		t.Errorf("row %+v", row)
	}
}

// Only the holder of a job gets its description and may write its log.
func TestOthersAreRefused(t *testing.T) {
	r := newRig(t)
	holder, d, _ := dispatched(r)
	other, _ := r.connect(r.static("linux"), register("box"))
	jobPath := "/api/v1/agent/jobs/" + d.JobID
	logPath := jobPath + "/logs?step=0&attempt=1&offset=0"
	for _, c := range []struct {
		who  *peer
		path string
		post bool
		want int
	}{
		{other, jobPath, false, http.StatusGone},
		{other, logPath, true, http.StatusGone},
		{other, "/api/v1/agent/jobs/nope", false, http.StatusGone},
		{&peer{r: r, id: managedID, token: other.token}, jobPath, false, http.StatusUnauthorized},
		{&peer{r: r, id: managedID}, jobPath, false, http.StatusUnauthorized},
		{&peer{r: r, token: holder.token}, jobPath, false, http.StatusUnauthorized},
		{holder, jobPath + "/logs?step=-1&attempt=1&offset=0", true, http.StatusBadRequest},
		{holder, jobPath + "/logs", true, http.StatusBadRequest},
		{holder, jobPath + "/logs?step=0&attempt=2&offset=0", true, http.StatusGone},
		{holder, jobPath, false, http.StatusOK},
	} {
		method := http.MethodGet
		if c.post {
			method = http.MethodPost
		}
		if code, data := c.who.request(method, c.path, strings.NewReader("{}\n")); code != c.want {
			t.Errorf("%s %s as %q: %d %s, want %d", method, c.path, c.who.id, code, data, c.want)
		}
	}
	for i := range 5 {
		other.status(d, int64(i+1), "failed")
		if i < 4 {
			var ack wire.ReportAck
			other.expect(wire.TypeReportAck, &ack)
			if !ack.Gone {
				t.Errorf("ack %+v", ack)
			}
		}
	}
	if code := other.closeCode(); code != wire.CloseInvalid {
		t.Errorf("five violations: close code %d", code)
	}
	if got := r.jobStatus(d.JobID); got != "queued" {
		t.Errorf("job %s", got)
	}
}

// XC-115: a job whose secrets cannot be resolved fails with the reason instead of running without.
func TestXC115Secrets(t *testing.T) {
	r := newRig(t)
	p, d, _ := dispatched(r)
	r.secrets.err = errors.New("the key does not open it")
	if code, data := p.request(http.MethodGet, "/api/v1/agent/jobs/"+d.JobID, nil); code != http.StatusGone {
		t.Errorf("%d %s", code, data)
	}
	if got := r.jobStatus(d.JobID); got != "failed" {
		t.Errorf("job %s", got)
	}
}

// XC-78: an agent that loses its link comes back with its job, which goes on.
func TestXC78Recover(t *testing.T) { onBoth(t, recovers) }

func recovers(t *testing.T, r *rig) {
	p, d, token := dispatched(r)
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, nil)
	p.drop()
	r.eventually("recovering", func() bool { return r.jobStatus(d.JobID) == "recovering" })
	reg := register(managedID)
	reg.InFlightJobs = []wire.InFlight{{JobID: d.JobID, RunID: d.RunID, Attempt: 1}, {JobID: "old", RunID: "old", Attempt: 1}}
	p, ack := r.connect(token, reg)
	if len(ack.Abandon) != 1 || ack.Abandon[0] != "old" || r.jobStatus(d.JobID) != "running" {
		t.Errorf("ack %+v, job %s", ack, r.jobStatus(d.JobID))
	}
	p.status(d, 2, "success")
	p.expect(wire.TypeReportAck, nil)
	if got := r.jobStatus(d.JobID); got != "success" {
		t.Errorf("job %s", got)
	}
}

// A dispatch that was lost with the link is repeated; one that the agent lost with its process ends.
func TestReconnectWithoutTheJob(t *testing.T) { onBoth(t, reconnectWithoutTheJob) }

func reconnectWithoutTheJob(t *testing.T, r *rig) {
	p, d, token := dispatched(r)
	p.drop()
	r.eventually("link lost", func() bool { return r.agent(managedID).InstanceID == "" })
	p, ack := r.connect(token, register(managedID))
	if !ack.PendingDispatch {
		t.Errorf("ack %+v", ack)
	}
	var again wire.JobDispatch
	p.expect(wire.TypeJobDispatch, &again)
	if again.JobID != d.JobID || again.Attempt != 1 {
		t.Errorf("dispatch %+v", again)
	}
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, nil)
	p.drop()
	r.eventually("recovering", func() bool { return r.jobStatus(d.JobID) == "recovering" })
	r.connect(token, register(managedID))
	if got := r.jobStatus(d.JobID); got != "failed" { // XS-55
		t.Errorf("job %s", got)
	}
}

// XC-76: a job that was taken back is stopped on the agent that still works on it.
func TestXC76StaleReports(t *testing.T) { onBoth(t, staleReports) }

func staleReports(t *testing.T, r *rig) {
	p, d, _ := dispatched(r)
	r.write(func(_ context.Context, tx *store.Tx) error {
		_, err := r.runs.Requeue(tx, d.JobID, 1, "not_acked", true)
		return err
	})
	var ack wire.ReportAck
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, &ack)
	if !ack.Gone || r.jobStatus(d.JobID) != "queued" {
		t.Errorf("ack %+v, job %s", ack, r.jobStatus(d.JobID))
	}
	p.send(wire.TypeJobHeartbeat, wire.JobHeartbeat{JobID: d.JobID, RunID: d.RunID, Attempt: 1})
	time.Sleep(20 * time.Millisecond)
	if err := r.fleet.flushBeats(t.Context()); err != nil { // XC-97
		t.Fatal(err)
	}
	p.expect(wire.TypeReportAck, &ack)
	if !ack.Gone {
		t.Errorf("ack %+v", ack)
	}
}

// takeBackUnacknowledged requeues a job that its agent did not acknowledge, and expects the agent to be disconnected.
func takeBackUnacknowledged(r *rig, p *peer, jobID string) {
	r.t.Helper()
	r.write(func(_ context.Context, tx *store.Tx) error {
		tx.Notify(store.TopicAssignments, managedID)
		_, err := r.runs.Requeue(tx, jobID, 1, "not_acked", true)
		return err
	})
	if code := p.closeCode(); code != wire.CloseNotAcked {
		r.t.Errorf("close code %d", code)
	}
}

// XS-48: an agent that does not acknowledge is disconnected once its job was taken back.
func TestXS48NotAcknowledged(t *testing.T) {
	r := newRig(t)
	p, d, _ := dispatched(r)
	r.offset.Store(int64(11 * time.Second))
	takeBackUnacknowledged(r, p, d.JobID)
}

// The time is that of the job's organisation, as it was when the job was sent.
func TestXS48TimeOfTheOrganisation(t *testing.T) {
	r := newRig(t, func(s *Settings) {
		s.AckWithin = time.Hour
		s.AckFor = func(org string) time.Duration { return map[string]time.Duration{"default": 2 * time.Second}[org] }
	})
	p, d, _ := dispatched(r)
	r.offset.Store(int64(3 * time.Second))
	takeBackUnacknowledged(r, p, d.JobID)
	s := &session{}
	s.begin(delivered{key: jobKey{"j", 1}, ackBy: 100})
	for now, want := range map[int64]bool{99: false, 100: true} {
		if _, late := s.overdueAck(now); late != want {
			t.Errorf("at %d: %t", now, late)
		}
	}
}

func TestRejectRequeues(t *testing.T) { onBoth(t, rejectRequeues) }

func rejectRequeues(t *testing.T, r *rig) {
	p, d, _ := dispatched(r)
	p.send(wire.TypeJobReject, wire.JobReject{RunID: d.RunID, JobID: d.JobID, Attempt: 1, Reason: "busy"})
	r.eventually("requeued", func() bool { return r.assignment(d.JobID, 1).EndedAt.Valid })
	if a := r.assignment(d.JobID, 1); a.EndReason != "rejected: busy" || r.jobStatus(d.JobID) != "queued" {
		t.Errorf("%+v, job %s", a, r.jobStatus(d.JobID))
	}
	attempts := func() int64 {
		rows, err := r.st.Read().WholeJobs(t.Context(), d.RunID)
		if err != nil {
			t.Fatal(err)
		}
		return rows[slices.IndexFunc(rows, func(j db.ExecutionJob) bool { return j.ID == d.JobID })].DispatchAttempts
	}
	if n := attempts(); n != 1 {
		t.Errorf("%d attempts", n)
	}
	// One that drains refuses for a reason that is not the job's (XC-88).
	if !r.assign(d.JobID, d.RunID, managedID) {
		t.Fatal("not assigned")
	}
	p.expect(wire.TypeJobDispatch, &d)
	p.send(wire.TypeJobReject, wire.JobReject{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, Reason: "draining"})
	r.eventually("requeued", func() bool { return r.assignment(d.JobID, int64(d.Attempt)).EndedAt.Valid })
	if n := attempts(); n != 1 || r.jobStatus(d.JobID) != "queued" {
		t.Errorf("%d attempts, job %s", n, r.jobStatus(d.JobID))
	}
	// A refusal of a job that it has accepted is not believed.
	runID, ids := r.jobs(1)
	if !r.assign(ids[0], runID, managedID) {
		t.Fatal("not assigned")
	}
	p.expect(wire.TypeJobDispatch, &d)
	p.send(wire.TypeJobAck, wire.JobAck{JobID: d.JobID, Attempt: d.Attempt})
	p.send(wire.TypeJobReject, wire.JobReject{JobID: d.JobID, Attempt: d.Attempt, Reason: "busy"})
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, nil)
	if got := r.jobStatus(d.JobID); got != "running" {
		t.Errorf("job %s", got)
	}
}

// A cancel reaches the agent, and again after a reconnect; force is a second message.
func TestCancelIsDelivered(t *testing.T) { onBoth(t, cancelIsDelivered) }

func cancelIsDelivered(t *testing.T, r *rig) {
	p, d, token := dispatched(r)
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, nil)
	cancel := func(force bool) {
		t.Helper()
		if _, err := r.runs.Cancel(t.Context(), run.CancelRequest{OrgID: "default", RunID: d.RunID, By: "me", Reason: "enough", Force: force}); err != nil {
			t.Fatal(err)
		}
	}
	cancel(false)
	var c wire.JobCancel
	p.expect(wire.TypeJobCancel, &c)
	if c.JobID != d.JobID || c.Force || c.Reason == "" {
		t.Errorf("cancel %+v", c)
	}
	p.quiet(wire.TypeJobCancel)
	p.drop()
	r.eventually("link lost", func() bool { return r.agent(managedID).InstanceID == "" })
	reg := register(managedID)
	reg.InFlightJobs = []wire.InFlight{{JobID: d.JobID, RunID: d.RunID, Attempt: 1}}
	p, _ = r.connect(token, reg)
	p.expect(wire.TypeJobCancel, &c)
	cancel(true)
	p.expect(wire.TypeJobCancel, &c)
	if !c.Force {
		t.Errorf("cancel %+v", c)
	}
	p.status(d, 2, "cancelled")
	p.expect(wire.TypeReportAck, nil)
	if got := r.jobStatus(d.JobID); got != "cancelled" {
		t.Errorf("job %s", got)
	}
}

// A stop leaves the rows; the next start gives every agent its grace and takes jobs up again (DESIGN §9).
func TestRestart(t *testing.T) { onBoth(t, restart) }

func restart(t *testing.T, r *rig) {
	p, d, token := dispatched(r)
	p.status(d, 1, "running")
	p.expect(wire.TypeReportAck, nil)
	r.stop()
	if code := p.closeCode(); code != wire.CloseGoingAway {
		t.Errorf("close code %d", code)
	}
	if row := r.agent(managedID); row.InstanceID != instance || r.jobStatus(d.JobID) != "running" {
		t.Errorf("the stop changed rows: %+v, job %s", row, r.jobStatus(d.JobID))
	}
	r.start(DefaultSettings())
	if row := r.agent(managedID); row.InstanceID != "" || r.jobStatus(d.JobID) != "recovering" {
		t.Errorf("the start did not notice: %+v, job %s", row, r.jobStatus(d.JobID))
	}
	if err := r.fleet.sweep(t.Context()); err != nil || r.agent(managedID).State != "online" {
		t.Errorf("within the grace: %v, %s", err, r.agent(managedID).State)
	}
	reg := register(managedID)
	reg.InFlightJobs = []wire.InFlight{{JobID: d.JobID, RunID: d.RunID, Attempt: 1}}
	p, _ = r.connect(token, reg)
	p.status(d, 2, "success")
	p.expect(wire.TypeReportAck, nil)
	if got := r.jobStatus(d.JobID); got != "success" {
		t.Errorf("job %s", got)
	}
}

// An idle agent whose link is lost has the grace too; then its compute ends.
func TestLostIdleAgent(t *testing.T) {
	r := newRig(t)
	token := r.managed(managedID, "linux")
	p, _ := r.connect(token, register(managedID))
	p.drop()
	r.eventually("link lost", func() bool { return r.agent(managedID).InstanceID == "" })
	if got := r.agent(managedID).State; got != "online" {
		t.Errorf("at once: %s", got)
	}
	r.offset.Store(int64(61 * time.Second))
	if err := r.fleet.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if row := r.agent(managedID); row.State != "ending" || row.GoneReason != ci.GoneLost {
		t.Errorf("row %+v", row)
	}
	again := r.dial()
	again.send(wire.TypeAuthRequest, wire.AuthRequest{Token: token, ProtocolVersion: 1})
	again.send(wire.TypeRegister, register(managedID))
	if code := again.closeCode(); code != wire.CloseAgentGone {
		t.Errorf("close code %d", code)
	}
}

func TestIdleManagedAgentLeaves(t *testing.T) { onBoth(t, idleManagedAgentLeaves) }

func idleManagedAgentLeaves(t *testing.T, r *rig) {
	p, _ := r.connect(r.managed(managedID, "linux"), register(managedID))
	p.leave()
	r.eventually("ending", func() bool { return r.agent(managedID).State == "ending" })
	if row := r.agent(managedID); row.GoneReason != ci.GoneIdle {
		t.Errorf("row %+v", row)
	}
}

// Sixteen agents at once, more jobs than agents, a leader that assigns carelessly: every job runs once, on one agent.
func TestSixteenAgentsNeverShareAJob(t *testing.T) { onBoth(t, sixteenAgentsNeverShareAJob) }

func sixteenAgentsNeverShareAJob(t *testing.T, r *rig) {
	const agents, jobs = 16, 64
	token := r.static("linux")
	runID, ids := r.jobs(jobs)
	var mu sync.Mutex
	got := map[string][]string{}
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range agents {
		p, _ := r.connect(token, register(fmt.Sprintf("box-%d", i)))
		wg.Go(func() {
			for f := range p.frames {
				if f.Type != wire.TypeJobDispatch {
					continue
				}
				var d wire.JobDispatch
				_ = json.Unmarshal(f.Body, &d)
				mu.Lock()
				got[d.JobID] = append(got[d.JobID], p.id)
				mu.Unlock()
				p.send(wire.TypeJobAck, wire.JobAck{JobID: d.JobID, Attempt: d.Attempt})
				p.status(d, 1, "running")
				p.status(d, 2, "success")
				done.Add(1)
			}
		})
	}
	var leaders sync.WaitGroup
	for l := range 2 { // two leaders that both think they lead
		leaders.Go(func() {
			for done.Load() < jobs {
				for j := range ids {
					r.assign(ids[j], runID, fmt.Sprintf("box-%d", (j*7+l)%agents))
				}
			}
		})
	}
	leaders.Wait()
	r.eventually("all succeed", func() bool {
		for _, id := range ids {
			if r.jobStatus(id) != "success" {
				return false
			}
		}
		return true
	})
	for id, who := range got {
		if len(who) != 1 {
			t.Errorf("job %s went to %v", id, who)
		}
	}
	if len(got) != jobs {
		t.Errorf("%d jobs ran, want %d", len(got), jobs)
	}
	r.stop()
	wg.Wait()
}

// A burst of reports is slowed down and warned about, not lost (AG-14).
func TestReportBurst(t *testing.T) {
	r := newRig(t)
	p, d, _ := dispatched(r)
	p.status(d, 1, "running")
	const steps = 260
	for i := range steps {
		p.send(wire.TypeStepStatus, wire.StepStatus{Seq: int64(i + 2), JobID: d.JobID, Attempt: 1, StepIndex: i, Name: "x", Status: "success"})
	}
	warned := false
	timeout := time.After(20 * time.Second)
	for seq := int64(0); seq < steps+1; {
		select {
		case f := <-p.frames:
			switch f.Type {
			case wire.TypeRateWarning:
				warned = true
			case wire.TypeReportAck:
				var ack wire.ReportAck
				_ = json.Unmarshal(f.Body, &ack)
				seq = max(seq, ack.Seq)
			}
		case <-timeout:
			t.Fatalf("acknowledged %d of %d", seq, steps+1)
		}
	}
	rows, err := r.st.Read().StepResults(t.Context(), d.JobID)
	if err != nil || len(rows) != steps || !warned {
		t.Errorf("%d steps, warned %v, %v", len(rows), warned, err)
	}
}

// A delivery whose row is written only after the agent has come back on another connection does not keep the job from being
// sent there: the old connection's mark loses.
func TestLateDeliveryMarksNothing(t *testing.T) { onBoth(t, lateDeliveryMarksNothing) }

func lateDeliveryMarksNothing(t *testing.T, r *rig) {
	_, d, _ := dispatched(r)
	r.write(func(ctx context.Context, tx *store.Tx) error {
		back := func() error { _, err := tx.FleetUnsend(ctx, d.JobID, int64(d.Attempt)); return err }
		if err := back(); err != nil {
			return err
		}
		read, err := tx.FleetUnsent(ctx, r.fleet.InstanceID)
		if err != nil || len(read) != 1 {
			return fmt.Errorf("%d assignments to send: %w", len(read), err)
		}
		if err := back(); err != nil { // again, while the delivery of the first is being noted
			return err
		}
		late := db.FleetMarkSentParams{JobID: d.JobID, Attempt: int64(d.Attempt), WasAckBy: read[0].AckBy, SentAt: sql.NullInt64{Int64: 1, Valid: true}}
		if n, err := tx.FleetMarkSent(ctx, late); err != nil || n != 0 {
			t.Errorf("the older delivery was noted as the newer one's: %d, %v", n, err)
		}
		return nil
	})
}
