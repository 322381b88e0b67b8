package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
)

// controlWorld is what the fake server says about the cluster.
func controlWorld() map[string]any {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	acme := client.Org{ID: "acme", Name: "Acme Ltd", CreatedAt: at(0)}
	settings := func(scope, key string) client.Settings {
		return client.Settings{Scope: scope, Version: 3, UpdatedBy: "ada", UpdatedAt: atp(9), Settings: []client.Setting{
			{Key: key, Value: raw("12"), Default: raw("50000"), Source: "live", Type: "number", Variable: "KICI_X", About: "waiting jobs"},
			{Key: "allowedRepos", Value: raw("null"), Default: raw("null"), Source: "default", Type: "list", Variable: "KICI_ALLOWED_REPOS", About: "repositories"},
		}}
	}
	changed := client.SettingsChanged{Version: 4, Changed: []client.SettingChange{{Key: "queueMaxDepth", Old: raw("null"), New: raw("12")}}}
	entry := client.AccessEntry{ID: "e1", At: at(0), ActorKind: "api_key", Actor: "t1", Label: "ada", Action: "org.create", Outcome: "allowed", Source: "admin_cli", Meta: raw(`{"organisation":"acme"}`)}
	instance := client.Instance{InstanceID: "i-1", Name: "hydra", Version: "1.2.3", URL: "http://ci", State: "ready", Leader: true, JobsRunning: 2, Agents: 3, SettingsVersion: 3, StartedAt: at(0), LastSeenAt: atp(9)}
	return map[string]any{
		"GET /cluster-settings": settings("cluster", "queueMaxDepth"), "PATCH /cluster-settings": changed,
		"GET /org-settings": settings("org:default", "queueTimeoutMs"), "PATCH /org-settings": changed,
		"GET /cluster-settings/propagation": client.Propagation{Version: 3, Applied: 3, Instances: []client.PropagationStatus{{InstanceID: "i-1", Name: "hydra", Applied: 2, Behind: true, Live: true}}},
		"GET /cluster-name":                 client.ClusterName{Name: "cluster-1a2b3c"},
		"PUT /cluster-name":                 client.ClusterName{Name: "production", ReconnectRequired: true},
		"GET /cluster/peers":                client.InstanceList{Instances: []client.Instance{instance}},
		"POST /orchestrator/drain":          client.DrainState{InstanceID: "i-1", Name: "hydra", Draining: true, JobsRunning: 1},
		"GET /orchestrator/drain":           client.DrainState{InstanceID: "i-1", Name: "hydra", Draining: true},
		"GET /orgs":                         client.OrgList{Orgs: []client.Org{acme}},
		"GET /orgs/acme":                    acme,
		"POST /orgs":                        client.NewOrg{Org: acme, Token: "tok-secret"},
		"GET /scheduled-jobs":               client.ScheduledJobList{Jobs: []client.ScheduledJob{{Name: "cleanup", About: "deletes what is old", EveryMs: 3_600_000, LastRunAt: atp(0), LastOKAt: atp(0), DurationMs: 12}}},
		"POST /scheduled-jobs/cleanup/trigger": client.JobTriggered{
			Triggered: true, OK: true, DurationMs: 12, Report: []string{"deleted 3 runs older than 90 days"},
		},
		"GET /access-log/e1": entry,
	}
}

func init() {
	for words, d := range map[string]struct {
		args string
		read bool
	}{
		"cluster-settings show": {"", true}, "cluster-settings set": {"queueMaxDepth 12", false}, "cluster-settings reset": {"queueMaxDepth", false},
		"cluster-settings propagation": {"", true}, "cluster-name get": {"", true}, "cluster-name set": {"production", false},
		"org-settings show": {"", true}, "org-settings set": {"--queue-timeout-ms 12", false}, "org-settings reset": {"queueTimeoutMs", false},
		"org-settings global-workflows allow-add": {"acme/*", false}, "org-settings global-workflows deny-add": {"acme/*", false},
		"org-settings global-workflows show": {"", true}, "org-settings global-workflows reset": {"", false}, "org-settings global-workflows set-enabled": {"true", false},
		"org create": {"acme", false}, "org list": {"", true}, "org show": {"acme", true},
		"orchestrator list": {"", true}, "orchestrator drain": {"", false}, "orchestrator resume": {"", false},
		"scheduled-job list": {"", true}, "scheduled-job trigger": {"cleanup", false}, "access-log show": {"e1", true},
	} {
		documents[words] = d
	}
	// They need an entry to remove: TestSettingLists looks at them.
	noDocument = append(noDocument, "org-settings global-workflows allow-remove", "org-settings global-workflows deny-remove")
	for _, aspect := range strings.Fields("allow-http-npm allow-untrusted-dockerfile-builds backup-freshness reroute queue-timeout approval dispatch-ack scaler-spawn-timeout ingest-concurrency sandbox-allowlist user-cache artifacts dashboard-writes") {
		documents["org-settings "+aspect] = struct {
			args string
			read bool
		}{"reset", false}
	}
}

// An entry that is not in a list cannot be removed, and one that is added is sent with those that are there.
func TestSettingLists(t *testing.T) {
	b := newBench(t)
	if code := b.run("org-settings", "global-workflows", "deny-remove", "acme/shop"); code != 1 || !strings.Contains(b.err.String(), "not in deniedRepos") {
		t.Errorf("exit %d: %s", code, &b.err)
	}
	for args, code := range map[string]int{
		"cluster-settings set":                              64,
		"cluster-settings set queueMaxDepth":                64,
		"cluster-settings set --queue-max-depth null":       0,
		"cluster-settings set queueMaxDepth=1 x=2":          0,
		"cluster-settings show queue-max-depth":             0,
		"cluster-settings show nothing":                     1,
		"orchestrator drain --wait --timeout 1m":            0,
		"orchestrator drain --wait --timeout 10ms":          2,
		"orchestrator drain --status":                       0,
		"orchestrator drain --wait --status":                64,
		"scheduled-job trigger nothing":                     1,
		"org list --org acme":                               0,
		"access-log list --since yesterday":                 64,
		"access-log list --action secret.* --outcome error": 0,
	} {
		if got := b.run(strings.Fields(args)...); got != code {
			t.Errorf("kici %s: exit %d, want %d: %s", args, got, code, &b.err)
		}
	}
}

// What draining says is two words that a script can read (CLI-10).
func TestDrainWords(t *testing.T) {
	b := newBench(t)
	for args, want := range map[string]string{
		"orchestrator drain": "draining=true jobsRunning=1\n", "orchestrator drain hydra --status": "draining=true jobsRunning=0\n",
	} {
		if code := b.run(strings.Fields(args)...); code != 0 || b.out.String() != want {
			t.Errorf("kici %s: exit %d %q", args, code, &b.out)
		}
	}
}

// With --offline or --database-url a command asks no server: it opens the database, and gives it free at its end (CLI-5).
func TestOffline(t *testing.T) {
	for args, want := range map[string]string{"org list --offline": "from the environment", "org list --database-url postgres://x": "postgres://x", "org list": ""} {
		b := newBench(t)
		b.env["KICI_DATABASE_URL"] = "from the environment"
		opened, closed := "", 0
		in := testInjected()
		in.Offline = func(_ context.Context, url string) (string, string, func() error, error) {
			opened = url
			return b.env["KICI_URL"], "good", func() error { closed++; return nil }, nil
		}
		c := *b.c
		if code := execute(t.Context(), &c, append([]string{"kici"}, strings.Fields(args)...), in); code != 0 || !strings.Contains(b.out.String(), "acme") {
			t.Errorf("kici %s: exit %d %s", args, code, &b.err)
		}
		if opened != want || (closed == 1) != (want != "") {
			t.Errorf("kici %s opens %q and closes %d times", args, opened, closed)
		}
	}
	if b := newBench(t); b.run("org", "list", "--offline") != 64 {
		t.Error("a program without it goes on")
	}
}
