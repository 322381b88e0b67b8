package harness

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

const sha = "9f31c2e4d5b6a7980123456789abcdef01234567"

const shop, site, models = "acme/shop", "acme/site", "acme/models"

// happening is what a run of the gallery came from.
type happening struct {
	repo, workflow, branch, title, actor, kind, delivery, group string
	jobs                                                        []lock.Job
}

func (p *painting) add(e happening) string {
	p.t.Helper()
	if e.kind == "" {
		e.kind = "push"
	}
	w := lock.Workflow{Name: e.workflow, SourceFile: ".kici/workflows/" + e.workflow + ".yaml", Jobs: e.jobs}
	if e.group != "" {
		w.Concurrency = &lock.Concurrency{Group: e.group}
	}
	planned := p.Runs.Plan(run.New{
		OrgID: readtest.Org, RoutingKey: "generic:default:" + strings.TrimPrefix(e.repo, "acme/"), Repo: e.repo, TriggerEvent: e.kind, Actor: e.actor,
		DeliveryRow: e.delivery, Workflow: w,
		Event: ci.Event{Type: "push", Repo: e.repo, Ref: "refs/heads/" + e.branch, Branch: e.branch, Title: e.title, SHA: sha},
	})
	var id string
	p.Write(func(tx *store.Tx) (err error) {
		id, _, err = p.Runs.Insert(tx, planned)
		return err
	})
	p.last = id
	return id
}

// begin starts a job on a new agent of a scaler.
func (p *painting) begin(runID, job, scaler, node string) (id, agent string) {
	p.t.Helper()
	id = p.JobID(runID, job)
	agent = p.agent(scaler, node, id)
	p.Assign(runID, id, agent)
	p.Start(runID, id, agent)
	return id, agent
}

func (p *painting) agent(scaler, node, job string) string {
	p.t.Helper()
	p.agents++
	kind := map[string]string{"containers": "container", "vm-linux": "firecracker", "gpu-box": "bare-metal"}[scaler]
	id := fmt.Sprintf("scaler-%s-5be01c%02x", kind, p.agents)
	p.Write(func(tx *store.Tx) error {
		return tx.DispatchLaunch(p.t.Context(), db.DispatchLaunchParams{
			ID: id, OrgID: readtest.Org, NodeID: node, Scaler: scaler, Type: kind, Labels: `["linux","` + kind + `"]`, MandatoryLabels: `[]`,
			CpuMilli: 2000, MemBytes: 4 << 30, BoundJobID: sql.NullString{String: job, Valid: job != ""}, Now: tx.Now(),
			RegisterBy: sql.NullInt64{Int64: tx.Now() + 60_000, Valid: true},
		})
	})
	time.Sleep(400 * time.Millisecond)
	p.Online(id)
	return id
}

func (p *painting) end(job, agent string, status ci.JobStatus) {
	p.t.Helper()
	p.Finish(job, agent, status)
	p.Write(func(tx *store.Tx) error {
		_, err := tx.NodeCloseAgent(p.t.Context(), db.NodeCloseAgentParams{ID: agent, State: "draining", GoneReason: "job_done", Now: tx.Now()})
		return err
	})
}

// whole plays a run of one job from its event to its end.
func (p *painting) whole(e happening, took time.Duration, status ci.JobStatus) string {
	p.t.Helper()
	e.jobs = []lock.Job{readtest.Job("build")}
	id := p.add(e)
	job, agent := p.begin(id, "build", "containers", "build-1")
	time.Sleep(took)
	p.end(job, agent, status)
	return id
}

// paint makes the day up to the instant at which the pictures are taken.
func (p *painting) paint() {
	p.nodes()
	p.sources()
	p.whole(happening{repo: site, workflow: "ci", branch: "main", title: "Shorter titles in search results", actor: "grace"}, 94*time.Second, ci.JobSuccess)
	time.Sleep(11 * time.Minute)
	p.whole(happening{repo: shop, workflow: "ci", branch: "main", title: "Round prices the way the tax office does", actor: "ada"}, 3*time.Minute, ci.JobSuccess)
	time.Sleep(4 * time.Minute)
	p.whole(happening{repo: shop, workflow: "ci", branch: "checkout/one-page", title: "One page for the whole checkout", actor: "linus", kind: "pr:opened"}, 71*time.Second, ci.JobFailed)
	time.Sleep(9 * time.Minute)
	p.whole(happening{repo: models, workflow: "evaluate", branch: "main", title: "Evaluate nightly", kind: "schedule"}, 6*time.Minute, ci.JobSuccess)
	p.deliver(db.InsertDeliveryParams{Event: "push", Ref: "refs/heads/main", Repo: site, SourceID: "source-site", Status: "processed", Matched: 1})
	failed := ci.NewID()
	p.deliver(db.InsertDeliveryParams{
		ID: failed, Event: "push", Ref: "refs/heads/main", SourceID: "source-models", Repo: models, Status: "processing", ClaimedBy: "n", Attempts: 10,
	})
	p.pages["failed delivery"], p.pages["deliveries"], p.pages["source"] = "/deliveries/"+failed, "/deliveries", "/sources/shop"
	time.Sleep(7 * time.Minute)
	p.deliver(db.InsertDeliveryParams{Event: "tag", Ref: "refs/tags/v1.4.0", Repo: site, SourceID: "source-site", Status: "lockfile_missing"})
	p.whole(happening{repo: site, workflow: "deploy", branch: "main", title: "Deploy v1.4.0", actor: "grace", kind: "dispatch"}, 48*time.Second, ci.JobSuccess)
	time.Sleep(2 * time.Minute)
	p.busy()
	p.queued()
	p.control()
	p.now()
	p.settle()
	p.lead()
}

// busy fills the scaler of virtual machines.
func (p *painting) busy() {
	id := p.add(happening{repo: site, workflow: "e2e", branch: "main", title: "Shorter titles in search results", actor: "grace", jobs: []lock.Job{
		readtest.Job("firefox"), readtest.Job("chromium"), readtest.Job("webkit"),
	}})
	for _, job := range []string{"firefox", "chromium", "webkit"} {
		p.begin(id, job, "vm-linux", "build-2")
	}
	id = p.add(happening{repo: models, workflow: "evaluate", branch: "main", title: "Compare with last month", actor: "marie", jobs: []lock.Job{readtest.Job("compare")}})
	p.begin(id, "compare", "vm-linux", "build-2")
}

// warm has agents that wait for work, and one that starts.
func (p *painting) warm() {
	for range 3 {
		p.agent("containers", "build-1", "")
	}
}

// nodes are three machines with a scaler each, one of which is on two.
func (p *painting) nodes() {
	const gib = 1 << 30
	p.Write(func(tx *store.Tx) error {
		for _, n := range []string{"build-1", "build-2", "gpu-1"} {
			if err := tx.StartInstance(p.t.Context(), db.StartInstanceParams{InstanceID: n, Name: n, Version: "1", Url: "http://x", Now: tx.Now()}); err != nil {
				return err
			}
		}
		for i, s := range []db.NodePutScalerParams{
			{NodeID: "build-1", Name: "containers", Type: "container", MaxAgents: 12, CapCpuMilli: 32_000, CapMemBytes: 64 * gib},
			{NodeID: "build-2", Name: "containers", Type: "container", MaxAgents: 8, CapCpuMilli: 16_000, CapMemBytes: 32 * gib},
			{NodeID: "build-2", Name: "vm-linux", Type: "firecracker", MaxAgents: 4, CapCpuMilli: 16_000, CapMemBytes: 32 * gib},
			{NodeID: "gpu-1", Name: "gpu-box", Type: "bare-metal", MaxAgents: 2, CapCpuMilli: 16_000, CapMemBytes: 128 * gib},
		} {
			labels := map[string][]string{"containers": {"linux", "container"}, "vm-linux": {"linux", "vm"}, "gpu-box": {"linux", "gpu"}}[s.Name]
			spec, err := json.Marshal(placement.ScalerSpec{LabelSets: []placement.LabelSet{{Declared: labels}}})
			if err != nil {
				return err
			}
			s.Position, s.Spec, s.Ready, s.Now = int64(i), string(spec), true, tx.Now()
			if err := tx.NodePutScaler(p.t.Context(), s); err != nil {
				return err
			}
		}
		return nil
	})
}

// settle makes the nodes heard of now, and one of them in trouble.
func (p *painting) settle() {
	tail := "Xid 79: GPU has fallen off the bus\nnvidia-smi: no devices were found\nexit status 6"
	p.Write(func(tx *store.Tx) error {
		for _, n := range []string{"build-1", "build-2", "gpu-1"} {
			if err := tx.StartInstance(p.t.Context(), db.StartInstanceParams{InstanceID: n, Name: n, Version: "1", Url: "http://x", Now: tx.Now()}); err != nil {
				return err
			}
		}
		for i := range int64(3) {
			_, err := tx.NodeInsertFailure(p.t.Context(), db.NodeInsertFailureParams{
				AgentID: fmt.Sprintf("scaler-bare-metal-77aa010%d", i), NodeID: "gpu-1", Scaler: "gpu-box", At: tx.Now() - (2-i)*55_000 - 21_000,
				Error: "nvidia-smi: no devices were found", Tail: tail,
			})
			if err != nil {
				return err
			}
		}
		return tx.NodeSetBackoff(p.t.Context(), db.NodeSetBackoffParams{
			NodeID: "gpu-1", Scaler: "gpu-box", Failures: 3, UntilAt: tx.Now() + 184_000, LastError: "nvidia-smi: no devices were found", Now: tx.Now(),
		})
	})
}

func (p *painting) sources() {
	p.Write(func(tx *store.Tx) error {
		for _, s := range []db.InsertSourceParams{
			{ID: "source-shop", Kind: "gitea", Name: "shop", Repo: shop, Enabled: true},
			{ID: "source-site", Kind: "github", Name: "site", Repo: site, Enabled: true},
			{ID: "source-models", Kind: "gitlab", Name: "models", Repo: models, Enabled: true},
			{ID: "source-mirror", Kind: "local", Name: "mirror", Repo: "acme/mirror"},
		} {
			s.OrgID, s.RoutingKey, s.Config, s.CreatedAt = readtest.Org, "generic:default:"+s.Name, "{}", tx.Now()
			if _, err := tx.InsertSource(p.t.Context(), s); err != nil {
				return err
			}
		}
		return nil
	})
	for _, name := range []string{"queue", "agents", "scalers", "sources", "runs"} {
		p.pages[name] = "/" + name
	}
	p.pages["start"] = "/start?source=shop&workflow=deploy"
}

// deliver inserts a delivery that has been dealt with.
func (p *painting) deliver(d db.InsertDeliveryParams) {
	p.t.Helper()
	if d.ID == "" {
		d.ID = ci.NewID()
	}
	name := strings.TrimPrefix(d.SourceID, "source-")
	d.OrgID, d.DeliveryID, d.RoutingKey, d.Kind = readtest.Org, fmt.Sprintf("72d3162e-cc78-11e3-81ab-%012d", p.agents), "generic:default:"+name, "gitea"
	if d.Body == nil {
		d.Body = []byte("{}")
	}
	if d.Headers == "" {
		d.Headers, d.Decisions = "{}", "[]"
	}
	p.agents++
	p.Write(func(tx *store.Tx) error {
		d.ReceivedAt, d.BodySize = tx.Now()-300, int64(len(d.Body))
		d.FinishedAt = sql.NullInt64{Int64: tx.Now(), Valid: true}
		if d.ClaimedBy != "" {
			d.FinishedAt.Valid = false
		}
		if _, err := tx.InsertDelivery(p.t.Context(), d); err != nil || d.ClaimedBy == "" {
			return err
		}
		_, err := tx.FinishDelivery(p.t.Context(), db.FinishDeliveryParams{
			ID: d.ID, ClaimedBy: d.ClaimedBy, Attempt: d.Attempts, Status: "failed", Now: sql.NullInt64{Int64: tx.Now(), Valid: true}, Decisions: "[]", Repo: d.Repo, Ref: d.Ref,
			Error: "the repository cannot be reached: dial tcp 10.0.4.7:443: connection refused",
		})
		return err
	})
}

// queued makes what waits: for a scaler that backs off, for one that is full, and for a label that nobody has.
func (p *painting) queued() {
	train := p.add(happening{repo: models, workflow: "train", branch: "main", title: "Train on the May data", actor: "marie", jobs: []lock.Job{{
		Name: "train", RunsOn: lock.Selector{Labels: []string{"linux", "gpu"}}, Steps: []lock.Step{{Run: "make train"}},
		Resources: &ci.Claim{Requests: ci.Resources{CPUMilli: 8000, MemBytes: 32 << 30}},
	}}})
	time.Sleep(3 * time.Minute)
	ios := p.add(happening{repo: site, workflow: "app", branch: "main", title: "Widget for the lock screen", actor: "grace", jobs: []lock.Job{{
		Name: "ios", RunsOn: lock.Selector{Labels: []string{"macos-15"}}, Steps: []lock.Step{{Run: "make ios"}},
	}}})
	p.Reasons(p.JobID(train, "train"),
		placement.Reason{Kind: "backoff", Scaler: "gpu-box", Text: "gpu-box backs off until 09:53:29: 3 launches failed, last “nvidia-smi: no devices”"},
		placement.Reason{Kind: "labels", Scaler: "vm-linux", Text: "vm-linux lacks the label gpu"})
	p.Reasons(p.JobID(ios, "ios"), placement.Reason{Kind: "none", Text: "No scaler or agent offers macos-15; nearest is macos-14 on mac-mini"})
}

// now is the run that everybody looks at, in the middle of its life.
func (p *painting) now() {
	e := happening{repo: shop, workflow: "ci", branch: "main", title: "Cache the price table per region", actor: "ada"}
	e.delivery = ci.NewID()
	test := readtest.Job("test", "lint")
	test.Matrix = &lock.Matrix{Dimensions: map[string][]json.RawMessage{"go": {[]byte(`"1.25"`), []byte(`"1.26"`), []byte(`"tip"`)}}, Order: []string{"go"}}
	test.ContinueOnError = "matrix.go == 'tip'"
	test.Steps = []lock.Step{{Name: "restore cache", Run: "x"}, {Name: "go test ./...", Run: "x"}, {Name: "upload report", Run: "x"}}
	scan := readtest.Job("scan", "lint")
	scan.RunsOn.Labels = []string{"linux", "vm"}
	e.jobs = []lock.Job{readtest.Job("lint"), test, readtest.Job("image", "test"), scan, readtest.Job("deploy", "image", "scan")}
	id := p.add(e)
	p.deliver(db.InsertDeliveryParams{
		ID: e.delivery, Event: "push", Ref: "refs/heads/main", Repo: shop, SourceID: "source-shop", Status: "processed", Matched: 1, Sha: sha,
		RunID: sql.NullString{String: id, Valid: true}, Decisions: decisions,
		Headers: `{"content-type":"application/json","user-agent":"Go-http-client/1.1","x-event-type":"push"}`,
		Body:    []byte(`{"ref":"refs/heads/main","before":"1c02ab77","after":"9f31c2e4d5b6","pusher":{"name":"ada"}}`),
	})
	lint, agent := p.begin(id, "lint", "containers", "build-1")
	time.Sleep(18 * time.Second)
	p.end(lint, agent, ci.JobSuccess)
	p.Reasons(p.JobID(id, "scan"), placement.Reason{Kind: "full", Scaler: "vm-linux", Text: "vm-linux is full: 4 of 4 agents, held by acme/site #3 (3) and acme/models #2 (1)"})
	one, agent1 := p.begin(id, "test (1.25)", "containers", "build-1")
	two, agent2 := p.begin(id, "test (1.26)", "containers", "build-2")
	tip, agentT := p.begin(id, "test (tip)", "containers", "build-2")
	from := time.Now()
	p.Step(id, two, agent2, wire.StepStatus{Seq: 2, StepIndex: 0, Name: "restore cache", Status: "success", StartedAt: from.UnixMilli(), FinishedAt: from.UnixMilli() + 1900})
	time.Sleep(1900 * time.Millisecond)
	p.Step(id, two, agent2, wire.StepStatus{Seq: 3, StepIndex: 1, Name: "go test ./...", Status: "running", StartedAt: time.Now().UnixMilli()})
	p.logs.write(two, 0, from, "restored 214 MB in 1.7 s")
	p.logs.write(two, 1, time.Now(), goTest)
	p.warm()
	time.Sleep(49 * time.Second)
	p.end(tip, agentT, ci.JobFailed)
	time.Sleep(13 * time.Second)
	p.end(one, agent1, ci.JobSuccess)
	time.Sleep(24 * time.Second)
	p.pages["timeline"] = "/runs/" + id + "/timeline"
	p.pages["run"], p.pages["job"], p.pages["delivery"] = "/runs/"+id, "/runs/"+id+"/jobs/"+two, "/deliveries/"+e.delivery
}

const goTest = `::group::environment
go version go1.26.1 linux/amd64
GOFLAGS=-mod=readonly
::endgroup::
$ go test -race ./...
` + "\x1b[32mok\x1b[0m" + `  	acme/shop/cart	2.114s
` + "\x1b[32mok\x1b[0m" + `  	acme/shop/price	4.301s
` + "\x1b[31m--- FAIL: TestRegionFallback (0.31s)\x1b[0m" + `
    region_test.go:88: want EUR, got ***
    retry 1 of 2
` + "\x1b[32mok\x1b[0m" + `  	acme/shop/region	40.880s
` + "\x1b[32mok\x1b[0m" + `  	acme/shop/tax	1.207s`

const decisions = `[
{"workflow":"ci","matched":true,"trigger":"push","checks":[{"check":"event","pattern":"push","value":"push","passed":true},{"check":"branches","pattern":"main, release/**","value":"main","passed":true,"reason":"decided by main"}]},
{"workflow":"docs","matched":false,"checks":[{"check":"event","pattern":"push","value":"push","passed":true},{"check":"paths","pattern":"docs/**","passed":false,"reason":"none of 3 changed files matches"}]},
{"workflow":"release","matched":false,"checks":[{"check":"event","pattern":"tag","value":"push","passed":false},{"trigger":1,"check":"event","pattern":"dispatch","value":"push","passed":false}]}
]`
