package fleet

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/kici-go/kici/internal/blob"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

const instance = "node-1"

// rig is one coordinator: the real store, runs and logs, and agents over real sockets.
type rig struct {
	t       testing.TB
	st      *store.Store
	runs    *run.Service
	logs    *logs.Store
	fleet   *Fleet
	url     string
	offset  atomic.Int64 // of the clock
	secrets fakeSecrets
	rooms   fakeRooms
	archive func(w io.Writer) error // what an archive is
	stop    func()
}

type fakeSecrets struct{ err error }

func (s *fakeSecrets) Resolve(context.Context, string) (map[string]string, error) {
	return map[string]string{"TOKEN": "s3cret"}, s.err
}

type fakeClones struct{}

func (fakeClones) CloneFor(context.Context, string, string) (Clone, error) {
	return Clone{URL: "/srv/repo.git", Username: "u", Password: "p", SSHKey: "k", KnownHosts: "h"}, nil
}

// sources stands for the repository.
func (r *rig) sources(_ context.Context, c Clone, sha, ref string, w io.Writer) error {
	if c.Password != "p" || sha != strings.Repeat("a", 40) || ref != "refs/heads/main" {
		r.t.Errorf("archive of %+v %s %s", c, sha, ref)
	}
	return r.archive(w)
}

func runReports(runs *run.Service) NewBatch {
	return func(tx *store.Tx, agentID string) ReportBatch { return runs.Batch(tx, agentID) }
}

type logFiles struct{ *logs.Store }

func (l logFiles) job(p LogPosition) logs.Job {
	return logs.Job{RunID: p.RunID, JobID: p.JobID, Attempt: p.Attempt}
}

func (l logFiles) Append(ctx context.Context, p LogPosition, r io.Reader) (wire.LogAck, error) {
	ack, err := l.Store.Append(ctx, l.job(p), p.Step, p.Offset, r)
	if errors.Is(err, logs.ErrOffset) {
		err = ErrLogOffset
	}
	return ack, err
}
func (l logFiles) Finish(p LogPosition)      { l.Store.Finish(l.job(p)) }
func (l logFiles) Bytes(p LogPosition) int64 { return l.Store.Bytes(l.job(p)) }

func newRig(t testing.TB, settings ...func(*Settings)) *rig {
	t.Helper()
	return newRigOn(t, storetest.SQLiteDatabase(t), settings...)
}

// onBoth runs a test on both engines.
func onBoth(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) { fn(t, newRigOn(t, d)) })
}

func newRigOn(t testing.TB, database *storetest.Database, settings ...func(*Settings)) *rig {
	t.Helper()
	r := &rig{t: t}
	database.Config.Now = r.env().Now
	r.st = database.Open(t)
	blobs, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	r.logs = logs.New(blobs, r.st, obs.NewMetrics(), obs.Discard(), logs.Config{})
	t.Cleanup(func() { _ = r.logs.Close() })
	r.runs = run.NewService(r.st, run.DefaultSettings(), r.env(), obs.Discard())
	r.write(func(ctx context.Context, tx *store.Tx) error { return tx.InsertOrg(ctx, "default", 1) })
	s := DefaultSettings()
	for _, set := range settings {
		set(&s)
	}
	r.start(s)
	return r
}

func (r *rig) env() service.Env {
	return service.Env{NewID: ci.NewID, Now: func() time.Time { return time.Now().Add(time.Duration(r.offset.Load())) }}
}

// start brings the coordinator up; a second one is the same after a restart.
func (r *rig) start(s Settings) {
	r.t.Helper()
	r.fleet = New(Deps{
		Store: r.st, InstanceID: instance, Reports: runReports(r.runs), Losses: r.runs, Logs: logFiles{r.logs}, Contexts: r.runs,
		Secrets: &r.secrets, Clones: fakeClones{}, Archive: r.sources, Events: &r.rooms, Jobs: &r.rooms, Metrics: obs.NewMetrics(), Env: r.env(), Log: obs.Discard(), Settings: s,
	})
	if err := r.fleet.Adopt(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	server := httptest.NewServer(r.fleet.Handler())
	r.url = server.URL
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.fleet.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
		server.Close()
	}
	r.t.Cleanup(r.stop)
}

func (r *rig) write(fn func(context.Context, *store.Tx) error) {
	r.t.Helper()
	if err := r.st.Write(context.Background(), func(tx *store.Tx) error { return fn(context.Background(), tx) }); err != nil {
		r.t.Fatal(err)
	}
}

// static makes a token for agents started by hand.
func (r *rig) static(labels ...string) string {
	token := "kat_" + ci.RandomHex(32)
	r.write(func(ctx context.Context, tx *store.Tx) error {
		return tx.InsertAgentToken(ctx, db.InsertAgentTokenParams{
			ID: ci.NewID(), OrgID: "default", TokenHash: hashToken(token), Prefix: token[:12], Type: typeStatic, Labels: jsonText(labels),
			MandatoryLabels: "[]", CreatedAt: tx.Now(),
		})
	})
	return token
}

// managed makes the row and token of an agent that a scaler is starting.
func (r *rig) managed(id string, labels ...string) string {
	token := "kat_" + ci.RandomHex(32)
	r.write(func(ctx context.Context, tx *store.Tx) error {
		now := tx.Now()
		if err := tx.DispatchLaunch(ctx, db.DispatchLaunchParams{
			ID: id, OrgID: "default", NodeID: instance, Scaler: "s", Type: "bare-metal", Labels: jsonText(labels), MandatoryLabels: "[]", Now: now,
		}); err != nil {
			return err
		}
		if _, err := tx.NodeStartAgent(ctx, db.NodeStartAgentParams{ID: id, TokenHash: text(hashToken(token)), Launch: "{}", Now: now}); err != nil {
			return err
		}
		return tx.NodeInsertAgentToken(ctx, db.NodeInsertAgentTokenParams{
			ID: ci.NewID(), OrgID: "default", TokenHash: hashToken(token), Prefix: token[:12], AgentID: id, Labels: jsonText(labels),
			MandatoryLabels: "[]", Now: now, ExpiresAt: sql.NullInt64{Int64: now + 60_000, Valid: true},
		})
	})
	return token
}

// jobs makes a run with n independent jobs and returns their ids.
func (r *rig) jobs(n int) (runID string, ids []string) {
	r.t.Helper()
	w := lock.Workflow{Name: "ci", Env: map[string]string{"A": "flow", "B": "flow"}}
	for range n {
		w.Jobs = append(w.Jobs, lock.Job{
			Name: "job" + ci.RandomHex(3), RunsOn: lock.Selector{Labels: []string{"linux"}}, Env: map[string]string{"B": "job"},
			Steps: []lock.Step{{Run: "echo '<&>'"}},
		})
	}
	p := r.runs.Plan(run.New{
		OrgID: "default", RoutingKey: "generic:default:x", Repo: "acme/shop", Workflow: w, TrustTier: ci.TierTrusted,
		Event: ci.Event{Type: "push", Ref: "refs/heads/main", Branch: "main", SHA: strings.Repeat("a", 40), Payload: json.RawMessage(`{"x":1}`)},
	})
	r.write(func(ctx context.Context, tx *store.Tx) (err error) {
		runID, _, err = r.runs.Insert(tx, p)
		return err
	})
	rows, err := r.st.Read().RunJobs(context.Background(), runID)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return runID, ids
}

// assign is what the leader does. It reports false when the job or the agent was not free.
func (r *rig) assign(jobID, runID, agentID string) bool {
	r.t.Helper()
	ok := false
	err := r.st.Write(context.Background(), func(tx *store.Tx) error {
		ok = false
		attempt, err := tx.DispatchAssign(context.Background(), text(agentID), jobID)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		ok = true
		tx.Notify(store.TopicAssignments, agentID)
		return tx.DispatchInsertAssignment(context.Background(), db.DispatchInsertAssignmentParams{
			JobID: jobID, Attempt: attempt, RunID: runID, AgentID: agentID, CreatedAt: tx.Now(), AckBy: tx.Now() + 10_000,
		})
	})
	if store.IsUnique(err) { // two leaders at once: the index lets one through
		return false
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return ok
}

func (r *rig) agent(id string) db.FleetAgentRow {
	r.t.Helper()
	row, err := r.st.Read().FleetAgent(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return row
}

func (r *rig) jobStatus(id string) string {
	r.t.Helper()
	row, err := r.st.Read().LockJob(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return row.Status
}

func (r *rig) assignment(id string, attempt int64) db.FleetAssignmentRow {
	r.t.Helper()
	row, err := r.st.Read().FleetAssignment(context.Background(), id, attempt)
	if err != nil {
		r.t.Fatal(err)
	}
	return row
}

// eventually waits for what another goroutine does.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("never: %s", what)
}

// peer is an agent played by the test.
type peer struct {
	r      *rig
	id     string
	token  string
	conn   *websocket.Conn
	frames chan wire.Frame
	closed chan error
}

func (r *rig) dial() *peer {
	r.t.Helper()
	conn, _, err := websocket.Dial(context.Background(), r.url+"/ws", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetReadLimit(wire.MaxFrameBytes)
	p := &peer{r: r, conn: conn, frames: make(chan wire.Frame, 1000), closed: make(chan error, 1)}
	go func() {
		for {
			_, data, err := conn.Read(context.Background())
			if err != nil {
				p.closed <- err
				close(p.frames)
				return
			}
			var f wire.Frame
			_ = json.Unmarshal(data, &f)
			p.frames <- f
		}
	}()
	r.t.Cleanup(func() { _ = conn.CloseNow() })
	return p
}

func (p *peer) send(kind string, body any) {
	p.r.t.Helper()
	b, _ := json.Marshal(body)
	f, _ := json.Marshal(wire.Frame{Type: kind, Body: b})
	if err := p.conn.Write(context.Background(), websocket.MessageText, f); err != nil {
		p.r.t.Logf("send %s: %v", kind, err)
	}
}

// expect returns the body of the next frame of the given type, skipping heartbeats.
func (p *peer) expect(kind string, into any) {
	p.r.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case f, ok := <-p.frames:
			if !ok {
				p.r.t.Fatalf("connection closed while waiting for %s: %v", kind, <-p.closed)
			}
			if f.Type == kind {
				if into != nil {
					if err := json.Unmarshal(f.Body, into); err != nil {
						p.r.t.Fatal(err)
					}
				}
				return
			}
			if f.Type != wire.TypeHeartbeat {
				p.r.t.Fatalf("got %s %s, want %s", f.Type, f.Body, kind)
			}
		case <-timeout:
			p.r.t.Fatalf("no %s", kind)
		}
	}
}

// quiet fails when a frame of the given type comes within a moment.
func (p *peer) quiet(kind string) {
	p.r.t.Helper()
	timeout := time.After(150 * time.Millisecond)
	for {
		select {
		case f := <-p.frames:
			if f.Type == kind {
				p.r.t.Fatalf("unexpected %s %s", f.Type, f.Body)
			}
		case <-timeout:
			return
		}
	}
}

func (p *peer) closeCode() int {
	p.r.t.Helper()
	for {
		select {
		case _, ok := <-p.frames:
			if ok {
				continue
			}
			return int(websocket.CloseStatus(<-p.closed))
		case <-time.After(time.Minute):
			p.r.t.Fatal("the connection stays open")
		}
	}
}

func register(id string, labels ...string) wire.Register {
	return wire.Register{AgentID: id, Labels: labels, Platform: "linux", Arch: "amd64", Version: "1", MaxConcurrency: 1, Hostname: "Box"}
}

// connect dials, authenticates and registers.
func (r *rig) connect(token string, reg wire.Register) (*peer, wire.RegisterAck) {
	r.t.Helper()
	p := r.dial()
	p.id, p.token = reg.AgentID, token
	p.send(wire.TypeAuthRequest, wire.AuthRequest{Token: token, ProtocolVersion: wire.ProtocolVersion})
	p.expect(wire.TypeAuthSuccess, nil)
	p.send(wire.TypeRegister, reg)
	var ack wire.RegisterAck
	p.expect(wire.TypeRegisterAck, &ack)
	return p, ack
}

func (p *peer) leave() { _ = p.conn.Close(websocket.StatusNormalClosure, "") }

// drop breaks the link as a network would.
func (p *peer) drop() { _ = p.conn.CloseNow() }

func (p *peer) status(d wire.JobDispatch, seq int64, status string) {
	p.send(wire.TypeJobStatus, wire.JobStatus{Seq: seq, RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, Status: status})
}

func (p *peer) request(method, path string, body io.Reader) (int, []byte) {
	p.r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, p.r.url+path, body)
	if err != nil {
		p.r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set(headerAgent, p.id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, data
}
