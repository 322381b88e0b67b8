package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/scalercmd"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

// start is "now" of every command in the scripts.
var start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kici":       func() { os.Exit(scripted(os.Args)) },
		"kici-admin": func() { os.Exit(scripted(os.Args)) },
	})
}

// scripted is the program with a fixed clock; KICI_TEST_WIDTH pretends a terminal.
func scripted(args []string) int {
	c := console.New()
	c.Now = scriptedNow
	if w := os.Getenv("TEST_WIDTH"); w != "" {
		c.OutTerminal = true
		_, _ = fmt.Sscan(w, &c.Width)
	}
	return execute(context.Background(), c, args, testInjected())
}

func scriptedNow() time.Time { return start.Add(time.Hour) }

func testInjected() Injected {
	check := func(file, _ string) (string, []string, []client.ScalerProblem) {
		if file == "bad.yaml" {
			return file, []string{}, []client.ScalerProblem{
				{File: file, Line: 4, Column: 5, Path: "scalers[0].maxAgnets", Message: "unknown key", Cure: "did you mean maxAgents?"},
				{File: file, Line: 5, Column: 9, Message: "warm pools are not enforced yet", Warning: true},
			}
		}
		return "/srv/kici/scalers.yaml", []string{"local", "gpu"}, []client.ScalerProblem{}
	}
	return Injected{Version: "1.2.3", Scalers: scalercmd.File{Check: check, Schema: func() []byte { return []byte("{}\n") }}, Agent: func(*console.Console) *cobra.Command {
		return &cobra.Command{
			Use: "agent", Short: "Run an agent", Long: "Run an agent.", Example: "  kici agent", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "an agent runs")
				return err
			},
		}
	}}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			f := &fakeServer{}
			s := httptest.NewServer(f)
			env.Defer(s.Close)
			env.Setenv("SERVER", s.URL)
			env.Setenv("KICI_URL", s.URL)
			env.Setenv("KICI_TOKEN", "good")
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_CONFIG_HOME", "")
			env.Setenv("XDG_DATA_HOME", "")
			env.Values["server"] = f
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// received PATTERN: some request had "METHOD path body" that contains it.
			"received": func(ts *testscript.TestScript, neg bool, args []string) {
				f := ts.Value("server").(*fakeServer)
				if slices.ContainsFunc(f.seen(), func(r string) bool { return strings.Contains(r, args[0]) }) == neg {
					ts.Fatalf("requests: %q", f.seen())
				}
			},
			// exit CODE command…: the command ends with that code.
			"exit": func(ts *testscript.TestScript, _ bool, args []string) {
				want := args[0]
				err := ts.Exec(args[1], args[2:]...)
				got := "0"
				if err != nil {
					got = strings.TrimPrefix(err.Error(), "exit status ")
				}
				if got != want {
					ts.Fatalf("exit %s, want %s", got, want)
				}
			},
		},
	})
}

func at(seconds int) client.Time {
	return client.TimeOf(start.Add(time.Duration(seconds) * time.Second).UnixMilli())
}

func atp(seconds int) *client.Time { t := at(seconds); return &t }

func ms(n int64) *int64 { return &n }

func shown(status, word, class string) client.Status {
	return client.Status{Status: status, Word: word, Class: class}
}

// evil is text from a repository that tries to take over the terminal.
const evil = "fix\x1b[31m\x1b]0;owned\a the\u202e thing\r\n\x9b2J"

func testRun(number int64, status, class string) client.Run {
	return client.Run{
		ID: fmt.Sprintf("0195b2c4-0000-7000-8000-%012d", number), Number: number, Repo: "acme/shop", Workflow: "ci", Status: status,
		Display: shown(status, status, class), Title: evil, Ref: "refs/heads/main", Branch: "main",
		SHA: "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", Actor: "ada", TriggerEvent: "push", CreatedAt: at(0), StartedAt: atp(1),
		DurationMs: ms(61_000), QueuedMs: ms(1000), URL: "http://ci/runs/x",
	}
}

func testDetail(number int64, ended bool) client.RunDetail {
	d := client.RunDetail{Run: testRun(number, "running", "running"), RunAttempt: 1}
	code := 2
	d.Jobs = []client.Job{
		{
			ID: "job-build", RunID: d.ID, Name: "build", BaseName: "build", DisplayName: "build", Status: "success",
			Display: shown("success", "success", "success"), Labels: []string{"linux"}, Needs: []string{}, AgentID: "scaler-bare-metal-1",
			Node: "hydra", Scaler: "local", Attempt: 1, CreatedAt: at(0), StartedAt: atp(1), FinishedAt: atp(13), DurationMs: ms(12_000),
			Steps: []client.Step{
				{Index: 0, Name: "set up", Status: "success", Display: shown("success", "success", "success"), FinishedAt: atp(2), DurationMs: ms(400)},
				{Index: 1, Name: "make", Status: "success", Display: shown("success", "success", "success"), FinishedAt: atp(13), DurationMs: ms(11_600)},
			},
		},
		{
			ID: "job-test", RunID: d.ID, Name: "test (1.26)", BaseName: "test", DisplayName: "test (1.26)", Status: "queued",
			Display: shown("queued", "queued", "queued"), Labels: []string{"linux"}, Needs: []string{"job-build"}, Level: 1, Attempt: 1,
			CreatedAt: at(0), QueuedAt: atp(13), Why: "local is full: 2 of 2 agents, held by acme/site #479 (2)",
		},
	}
	if ended {
		d.Run = testRun(number, "failed", "failed")
		d.FinishedAt = atp(62)
		j := &d.Jobs[1]
		j.Status, j.Display, j.Why = "failed", shown("failed", "failed", "failed"), `step "go test" failed with exit code 2`
		j.StartedAt, j.FinishedAt, j.DurationMs = atp(20), atp(61), ms(41_000)
		j.Steps = []client.Step{{Index: 1, Name: "go test", Status: "failed", Display: shown("failed", "failed", "failed"), ExitCode: &code, FinishedAt: atp(61), DurationMs: ms(40_000)}}
	}
	return d
}

// fakeServer answers like a server with a small fixed world, and remembers what it was asked.
type fakeServer struct {
	requests lockedList
}

func (f *fakeServer) seen() []string { return f.requests.all() }

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.requests.add(r.Method + " " + r.URL.RequestURI() + " " + string(body))
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/api/v1")
	if path != "/capabilities" && r.Header.Get("Authorization") != "Bearer good" {
		answer(w, 401, client.Error{Message: "Invalid or expired token"})
		return
	}
	key := r.Method + " " + strings.TrimPrefix(path, "/admin")
	if strings.HasSuffix(path, "/events") && path != "/admin/events" || strings.HasSuffix(path, "/logs/stream") {
		f.stream(w, key)
		return
	}
	v, ok := world()[key]
	if !ok {
		v, ok = controlWorld()[key]
	}
	switch {
	case !ok:
		answer(w, 404, client.Error{Message: "there is no " + key})
	case r.Method == http.MethodPost && !strings.Contains(key, "/check"):
		answer(w, 201, v)
	default:
		answer(w, 200, v)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	if e, ok := v.(failed); ok {
		status, v = e.status, e.Error
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

type failed struct {
	status int
	client.Error
}

const run482 = "/runs/acme%2Fshop%23482"

func world() map[string]any {
	line := func(n int64, msg string) client.LogLine {
		return client.LogLine{N: n, TS: start.UnixMilli(), Level: "stdout", Msg: msg}
	}
	id := testRun(482, "", "").ID
	source := client.Source{
		ID: "src-1", Kind: "local", Name: "shop", RoutingKey: "generic:default:src-1", Repo: "acme/shop", Enabled: true,
		WebhookURL: "http://ci/webhook/default/generic/shop", Config: json.RawMessage(`{"path":"/srv/shop.git"}`), CreatedAt: at(0),
	}
	answers := registry(id)
	maps.Copy(answers, events(id))
	maps.Copy(answers, map[string]any{
		"GET /capabilities": client.Capabilities{OrchestratorVersion: "1.2.3", ProtocolVersion: 1, MinProtocolVersion: 1, Features: []string{"runs"}},
		"GET /whoami":       client.Identity{TokenID: "t1", OrgID: "default", Label: "ada", Role: "owner"},
		"GET /runs": client.RunList{Runs: []client.Run{
			testRun(482, "running", "running"), testRun(481, "success", "success"),
		}, NextCursor: "abc"},
		"GET " + run482:           testDetail(482, false),
		"GET " + run482 + "/jobs": client.JobList{Jobs: testDetail(482, false).Jobs},
		"GET " + run482 + "/timeline": client.Timeline{RunID: id, Entries: []client.TimelineEntry{
			{At: at(0), Kind: "delivered", Text: "a local delivery arrived: push", Link: &client.TimelineLink{Kind: "delivery", ID: "row-1"}},
			{At: at(13), Until: atp(20), Kind: "waiting", JobID: "job-test", Job: "test (1.26)", Text: "it waited because local is full: 2 of 2 agents"},
			{At: at(30), Kind: "cancel_asked", Text: "wrong branch", Actor: "ada"},
		}},
		"GET /runs/481":       testDetail(481, true),
		"GET /runs/" + id:     testDetail(482, false),
		"GET /jobs/job-build": testDetail(482, false).Jobs[0],
		"GET /jobs/job-test":  testDetail(482, true).Jobs[1],
		"GET /runs/" + id + "/jobs/job-build/steps/0/logs":        client.LogPage{Lines: []client.LogLine{line(1, "checked out 1a2b3c4d")}, Complete: true},
		"GET /runs/" + id + "/jobs/job-build/steps/0/logs/search": client.LogMatches{Lines: []client.LogLine{}, NextCursor: "c", Complete: true},
		"GET /runs/" + id + "/jobs/job-build/steps/1/logs/search": client.LogMatches{Lines: []client.LogLine{line(7, "ok make")}, NextCursor: "c", Complete: true},
		"GET /runs/" + id + "/jobs/job-build/steps/1/logs":        client.LogPage{Lines: []client.LogLine{line(1, "\x1b[32mok\x1b[0m make"), line(2, "tab\there")}, Complete: true},
		"GET /jobs/482%2Ftest%20%281.26%29/why": client.Why{
			JobID: "job-test", RunID: id, Name: "test (1.26)", Status: "queued", Headline: "local is full: 2 of 2 agents", AsOf: atp(30),
			Reasons: []client.Reason{
				{Kind: "cap", Scaler: "local", Text: "local is full: 2 of 2 agents", Until: atp(90)},
				{Kind: "no_label_match", Scaler: "mac", Text: "mac has no label linux\x1b[2J"},
			},
		},
		"POST /runs":                 client.NewRun{RunID: id, Number: 482, URL: "http://ci/runs/x"},
		"POST " + run482 + "/cancel": client.CancelResult{Status: "cancelling", CancelledJobs: 2},
		"POST /runs/481/cancel":      failed{409, client.Error{Message: "the run has already ended", Details: []string{"status: failed"}}},
		"POST " + run482 + "/rerun":  client.NewRun{RunID: id, Number: 483},
		"GET /check-runs": client.CheckRunList{CheckRuns: []client.CheckRun{
			{RunID: id, RunNumber: 482, Repo: "acme/shop", Workflow: "ci", Context: "kici/ci", State: "running", Wanted: "running", PostedAt: atp(250), CreatedAt: at(0)},
			{RunID: id, RunNumber: 482, Repo: "acme/shop", Workflow: "ci", Context: "kici/ci/job/test", Wanted: "failure", Attempts: 5, Reason: "denied", Error: "the credential was refused", CreatedAt: at(0), FailingSince: atp(0), GaveUpAt: atp(0)},
		}},
		"GET /agents": client.AgentList{Agents: []client.Agent{
			{ID: "scaler-bare-metal-1", Type: "bare-metal", Scaler: "local", NodeName: "hydra", State: "online", Connected: true, Labels: []string{"linux", "x64"}, JobName: "build", Repo: "acme/shop", RunNumber: 482, JobID: "job-build", RequestedAt: at(0), StateAt: at(3)},
			{ID: "scaler-bare-metal-2", Type: "bare-metal", Scaler: "local", NodeName: "hydra", State: "booting", Labels: []string{"linux"}, RequestedAt: at(0), StateAt: at(5)},
		}},
		"GET /agents/scaler-bare-metal-1": client.Agent{ID: "scaler-bare-metal-1", Type: "bare-metal", State: "online", Labels: []string{"linux"}, RequestedAt: at(0), StateAt: at(3)},
		"GET /sources/shop/workflows": client.Workflows{Source: "shop", Workflows: []client.Workflow{
			{Name: "deploy", File: ".kici/workflows/deploy.yaml", Startable: true, Inputs: []client.Input{{Name: "target", Type: "enum", Description: "where to"}}},
			{Name: "nightly"},
		}},
		"DELETE /tokens/t2":       map[string]bool{"revoked": true},
		"DELETE /agent-tokens/a1": map[string]bool{"revoked": true},
		"GET /access-log":         client.AccessLog{},
		"GET /diagnose":           client.Diagnosis{Status: "degraded", Checks: []client.DiagnosisCheck{{Name: "database", Status: "pass", Message: "sqlite answers"}, {Name: "disk", Status: "warn", Message: "1 GiB free", Cure: "make room"}}},
		"POST /scaler/reload": client.ScalerReload{
			Node: "n1", NodeName: "hydra", File: "/srv/kici/scalers.yaml", DryRun: true,
			Changes: []client.ScalerChange{
				{Change: "kept", Fields: []client.ScalerField{{Key: "globalMaxAgents", Old: "8", New: "12"}}},
				{Name: "local", Type: "bare-metal", Change: "kept", Fields: []client.ScalerField{{Key: "runAs", Old: "", New: "ci"}, {Key: "enforceCgroups", Old: "", New: "true", Restart: true}}},
				{Name: "gpu", Type: "bare-metal", Change: "added"},
				{Name: "old", Type: "bare-metal", Change: "retired"},
			},
			Problems: []client.ScalerProblem{{File: "/srv/kici/scalers.yaml", Line: 12, Column: 5, Path: "scalers[1].warmPool", Message: "warm pools are not enforced yet", Warning: true}},
		},
		"GET /scalers": client.ScalerList{Scalers: []client.Scaler{{
			Name: "local", Node: "n1", NodeName: "hydra", Type: "bare-metal", State: "backing off", StateText: "until 12:05:00 UTC after 3 failed launches: exec: no such file",
			ActiveCount: 2, StartingCount: 1, MaxAgents: 4, UsedCPUMilli: 1500, CapCPUMilli: 4000, LabelSets: [][]string{{"linux"}, {"linux", "gpu"}},
			NotProtected: []string{"a sandbox shares this machine's kernel, and the system in it can be read, most of /etc included", "the network is open"}, Holders: []client.ScalerHolder{{RunID: "r-1", Repo: "acme/shop", Number: 482, Agents: 2}},
			Failures: []client.ScalerFailure{{At: at(10), Agent: "scaler-bare-metal-0", Error: "exec: no such file", Tail: "line one\n\x1b[31mline two\n"}},
		}}},
		"POST /queue/clear": client.ClearedQueue{Runs: 1, Jobs: 3},
		"POST /execution/purge-stale": client.PurgedRuns{DryRun: true, Runs: []client.StandingRun{{
			RunID: "r-1", Number: 7, Repo: "acme/shop", Workflow: "ci", Status: "pending", CreatedAt: at(13),
		}}},
		"POST /sources/purge-stale": client.PurgedSources{DryRun: true, Sources: []client.StaleSource{{
			ID: "s-1", Kind: "github", Name: "old", RoutingKey: "generic:default:s-1", Repo: "acme/old", UpdatedAt: at(13),
		}}},
		"GET /queue": client.Queue{Waiting: 1, OldestAt: atp(13), OldestMs: 252_000, Items: []client.QueueItem{{
			JobID: "job-test", JobName: "test (1.26)", RunID: id, RunNumber: 482, Repo: "acme/shop", Workflow: "ci", Labels: []string{"linux"}, QueuedAt: at(13), WaitMs: 252_000,
			Why: "local is full: 2 of 2 agents", Reasons: []client.Reason{},
		}}},
		"GET /sources":                     client.SourceList{Sources: []client.Source{source}},
		"GET /sources/shop":                source,
		"POST /sources":                    client.AddedSource{Source: source, Secret: "made-secret"},
		"DELETE /sources/src-1":            map[string]bool{"deleted": true},
		"POST /sources/shop/disable":       source,
		"POST /sources/shop/enable":        source,
		"POST /sources/shop/trigger":       client.Triggered{DeliveryID: "d-1"},
		"POST /sources/shop/check":         client.SourceCheck{OK: true, DefaultBranch: "main", SHA: "1a2b3c4d5e", Title: "fix"},
		"POST /sources/gone/check":         client.SourceCheck{Message: "/srv/gone.git: no such directory"},
		"GET /sources/shop/webhook-secret": map[string]string{"secret": "made-secret"},
		"GET /deliveries": client.DeliveryList{Deliveries: []client.Delivery{{
			ID: "row-1", DeliveryID: "d-1", Source: "shop", Event: "push", Ref: "refs/heads/main", Status: "processed", Matched: 1, ReceivedAt: at(0),
		}}},
		"GET /deliveries/d-1": client.Delivery{
			ID: "row-1", DeliveryID: "d-1", Source: "shop", Event: "push", Ref: "refs/heads/main", SHA: "1a2b3c4d5e6f", Status: "processed",
			Matched: 1, Attempts: 1, RunID: id, ReceivedAt: at(0), Decisions: json.RawMessage(`[{"workflow":"ci","matched":true}]`),
		},
		"POST /deliveries/d-1/replay": client.Delivery{ID: "row-1", DeliveryID: "d-1", Status: "received"},
		"POST /deliveries/d-2/replay": failed{409, client.Error{Message: "only a failed delivery can be replayed; this one is processed"}},
		"GET /deliveries/d-1/payload": failed{403, client.Error{Message: "Role auditor may not event_log.read_payload"}},
		"POST /sources/hooks/check":   client.SourceCheck{OK: true},
		"GET /secrets":                client.SecretList{Secrets: []client.SecretKey{{Key: "DEPLOY", UpdatedAt: at(0)}, {Key: "NPM", Scope: "repo/acme/shop", UpdatedAt: at(0)}}},
		"PUT /secrets/DEPLOY":         map[string]bool{"set": true},
		"DELETE /secrets/OLD":         map[string]bool{"deleted": true},
		"POST /tokens":                client.Created{ID: "t2", Token: "tok-secret", Label: "ci", Role: "admin"},
		"GET /tokens":                 client.TokenList{Tokens: []client.Token{{ID: "t1", Type: "admin", Label: "ada", Role: "owner", CreatedAt: at(0)}, {ID: "t0", Type: "admin", Label: "old", Role: "admin", CreatedAt: at(-9000), RevokedAt: atp(0)}}},
		"DELETE /tokens/t1":           failed{409, client.Error{Message: "this is the last usable owner token; create another one first"}},
		"POST /agent-tokens":          client.Created{ID: "a1", Token: "kat_secret", Prefix: "kat_secr", Labels: []string{"linux"}, Type: "static"},
		"GET /agent-tokens":           client.TokenList{Tokens: []client.Token{{ID: "a1", Type: "static", Prefix: "kat_0123abcd", Labels: []string{"linux"}, CreatedAt: at(0)}}},
		"POST /login-links":           client.LoginLink{URL: "http://ci/login/link/xyz", ExpiresAt: at(600)},
	})
	return answers
}

func (f *fakeServer) stream(w http.ResponseWriter, key string) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(name, id string, v any) {
		b, _ := json.Marshal(v)
		fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", id, name, b)
		_ = http.NewResponseController(w).Flush()
	}
	if strings.HasSuffix(key, "/logs/stream") {
		send("lines", "1.1.5", map[string]any{"lines": []client.StepLine{{LogLine: client.LogLine{N: 1, Msg: "followed \x1b[1mline"}, Step: 1, Name: "make"}}})
	} else {
		number := int64(482)
		send("run", "", testDetail(number, false))
		send("run", "", testDetail(number, true))
	}
	send("end", "", struct{}{})
}
