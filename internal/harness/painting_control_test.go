package harness

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/periodic"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// control paints what the control plane shows beside runs: events, registrations, schedules, groups, settings, who did what.
func (p *painting) control() {
	p.registrations()
	p.grouped()
	p.emitted()
	p.people()
	p.settings = p.openSettings()
	for _, name := range []string{"events", "workflows", "schedules", "instances"} {
		p.pages[name] = "/" + name
	}
	p.pages["dead letters"], p.pages["periodic jobs"], p.pages["access log"] = "/events/dead", "/instances/jobs", "/access-log"
	p.pages["cluster settings"], p.pages["settings"], p.pages["tokens"], p.pages["organisations"] = "/settings/cluster", "/settings", "/settings/tokens", "/settings/organisations"
}

type untold struct{}

func (untold) EmitTx(*store.Tx, registration.Event) error { return nil }

// registrations are workflows of three repositories; one is off, one has a schedule that cannot fire.
func (p *painting) registrations() {
	room := registration.New(registration.Deps{Store: p.Store, Events: untold{}, Env: p.Env, Log: obs.Discard()})
	p.regs = map[string]string{}
	cron := func(expression, zone string) lock.Trigger {
		return lock.Trigger{Type: "schedule", Cron: expression, Timezone: zone}
	}
	push := lock.Trigger{Type: "push", Branches: []string{"main", "release/**"}}
	for _, r := range []struct {
		repo, workflow string
		on             []lock.Trigger
	}{
		{shop, "ci", []lock.Trigger{push, {Type: "pr", TargetBranches: []string{"main"}}}},
		{shop, "deploy", []lock.Trigger{{Type: "dispatch", Manual: true}, {Type: "kici_event", EventName: "image.published", Source: shop}}},
		{shop, "nightly", []lock.Trigger{cron("30 2 * * 1-5", "Europe/Berlin"), cron("0 0 30 2 *", "UTC")}},
		{site, "e2e", []lock.Trigger{push, cron("0 */6 * * *", "UTC")}},
		{site, "licences", []lock.Trigger{{Type: "push", Repos: []string{"acme/*"}}}},
		{models, "evaluate", []lock.Trigger{cron("15 9 * * *", "America/New_York")}},
		{models, "tell", []lock.Trigger{{Type: "workflow_complete", Workflow: "evaluate", Status: []string{"failed"}}}},
	} {
		w := lock.Workflow{Name: r.workflow, SourceFile: ".kici/workflows/" + r.workflow + ".yaml", On: r.on, Jobs: []lock.Job{readtest.Job("build"), readtest.Job("publish", "build")}}
		scope := db.WorkflowRegistration{OrgID: readtest.Org, RoutingKey: "generic:default:" + r.repo[len("acme/"):], Repo: r.repo, CommitSha: sha, DefaultBranch: "main"}
		if _, err := room.Register(p.t.Context(), scope, []lock.Workflow{w}); err != nil {
			p.t.Fatal(err)
		}
		rows, err := p.Store.Read().RegistrationsOfRepo(p.t.Context(), scope.RoutingKey, r.repo)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, row := range rows {
			p.regs[row.Workflow] = row.ID
		}
	}
	if err := room.SetDisabled(p.t.Context(), readtest.Org, p.regs["tell"], true); err != nil {
		p.t.Fatal(err)
	}
	p.pages["workflow"] = "/workflows/" + p.regs["nightly"]
}

// grouped is a concurrency group that one run holds and two wait for, and a matrix whose jobs take turns.
func (p *painting) grouped() {
	one := func(title, actor string) string {
		return p.add(happening{repo: shop, workflow: "deploy", branch: "main", title: title, actor: actor, group: "production", jobs: []lock.Job{readtest.Job("roll-out"), readtest.Job("smoke", "roll-out")}})
	}
	first := one("Deploy v1.4.0", "grace")
	p.begin(first, "roll-out", "containers", "build-1")
	time.Sleep(41 * time.Second)
	p.pages["held run"] = "/runs/" + one("Deploy v1.4.1", "ada")
	time.Sleep(12 * time.Second)
	one("Deploy v1.4.2", "ada")
}

// emitted are events of every state.
func (p *painting) emitted() {
	started := p.whole(happening{repo: shop, workflow: "deploy", branch: "main", title: "Deploy 9f31c2e to staging", kind: "kici_event:image.published"}, 31*time.Second, ci.JobSuccess)
	of := func(name, repo, key string) string {
		id := ci.NewID()
		p.Write(func(tx *store.Tx) error {
			return tx.InsertEvent(p.t.Context(), db.InsertEventParams{
				ID: id, OrgID: readtest.Org, EventName: name, Payload: `{"image":"registry.example.org/shop:9f31c2e","tests":412}`, SourceRepo: repo, SourceRoutingKey: "generic:default:" + key,
				SourceRunID: p.last, TargetRepos: "[]", CreatedAt: tx.Now(), ExpiresAt: tx.Now() + 7*24*3600_000, Emitter: event.EmitterStep, ChainDepth: 1,
			})
		})
		time.Sleep(9 * time.Second)
		return id
	}
	p.pages["event"] = "/events/" + p.route(of("image.published", shop, "shop"), event.OutcomeMatched, started)
	p.route(of("image.scanned", shop, "shop"), event.OutcomeNoRegistration, "")
	p.route(of("prices.changed", shop, "shop"), event.OutcomeTrust, "")
	p.fail(of("model.ready", models, "models"), "plan workflow tell: the repository cannot be reached: dial tcp 10.0.4.7:443: connection refused", event.DeadExhausted)
	p.fail(of("release.cut", site, "site"), `the inputs of workflow deploy: "instances" must be at most 20`, event.DeadNotRetryable)
	of("image.published", site, "site")
}

func (p *painting) claim(id string) {
	p.sweep()
	now := sql.NullInt64{Int64: time.Now().UnixMilli(), Valid: true}
	p.Write(func(tx *store.Tx) error {
		_, err := tx.ClaimEvents(p.t.Context(), db.ClaimEventsParams{Now: now, ClaimedBy: id, MaxAttempts: 5, MaxRows: 100})
		return err
	})
}

// route ends an event with an outcome and the run that it has started.
func (p *painting) route(id, outcome, runID string) string {
	p.claim(id)
	p.Write(func(tx *store.Tx) error {
		n := sql.NullInt64{Valid: true}
		if runID != "" {
			n.Int64 = 1
			if _, err := tx.InsertEventRun(p.t.Context(), id, p.regs["deploy"], runID); err != nil {
				return err
			}
		}
		_, err := tx.FinishEvent(p.t.Context(), db.FinishEventParams{
			ID: id, ClaimedBy: id, Attempt: 1, ProcessedAt: sql.NullInt64{Int64: tx.Now(), Valid: true}, MatchOutcome: sql.NullString{String: outcome, Valid: true}, MatchedCount: n,
		})
		return err
	})
	return id
}

func (p *painting) fail(id, why, reason string) {
	p.claim(id)
	p.Write(func(tx *store.Tx) error {
		_, err := tx.FailEvent(p.t.Context(), db.FailEventParams{ID: id, ClaimedBy: id, Attempt: 1, LastError: why, DlqAt: sql.NullInt64{Int64: tx.Now(), Valid: true}, DlqReason: reason})
		return err
	})
}

// people are tokens, an organisation and what they did; the cluster has a name and a leader.
func (p *painting) people() {
	ctx := p.t.Context()
	p.Write(func(tx *store.Tx) error {
		for i, t := range []db.InsertAdminTokenParams{
			{Label: "first owner", Role: "owner"},
			{Label: "ada's laptop", Role: "admin"},
			{Label: "shop's bot", Role: "auditor", RoutingKey: sql.NullString{String: "generic:default:shop", Valid: true}, ExpiresAt: sql.NullInt64{Int64: tx.Now() + 21*24*3600_000, Valid: true}},
		} {
			t.ID, t.OrgID, t.TokenHash, t.CreatedAt = fmt.Sprintf("token-%d", i), readtest.Org, fmt.Sprint("hash", i), tx.Now()
			if _, err := tx.InsertAdminToken(ctx, t); err != nil {
				return err
			}
		}
		for i, e := range []db.InsertAccessLogParams{
			{Action: "run.list.read", Source: access.SourceHTTP, Meta: `{"label":"shop's bot"}`},
			{Action: "secret.set", Target: "DEPLOY_KEY", Source: access.SourceCLI, Meta: `{"label":"ada's laptop"}`},
			{Action: "cluster_settings.update", Source: access.SourceCLI, Meta: `{"label":"first owner","version":1,"changed":[{"key":"runRetentionDays","old":null,"new":30}]}`},
			{Action: "run.cancel", Target: "019a3c77", Source: access.SourceHTTP, Outcome: access.DeniedEntry, Error: "role auditor lacks permission run.cancel", Meta: `{"label":"shop's bot"}`},
			{Action: "source.check", Target: "models", Source: access.SourceDashboard, Outcome: access.Failed, Error: "the repository cannot be reached", Meta: `{"label":"ada's laptop"}`},
			{Action: "run.manual_schedule", Target: "nightly", Source: access.SourceDashboard, Meta: `{"label":"ada's laptop"}`},
		} {
			e.ID, e.OrgID, e.At, e.ActorKind, e.Actor = fmt.Sprintf("entry-%d", i), readtest.Org, tx.Now()-int64(6-i)*171_000, access.KindAPIKey, "token"
			if e.Outcome == "" {
				e.Outcome = access.Allowed
			}
			if err := tx.InsertAccessLog(ctx, e); err != nil {
				return err
			}
		}
		if err := tx.InsertOrg(ctx, "acme-labs", tx.Now()); err != nil {
			return err
		}
		if err := tx.SetClusterMeta(ctx, "cluster_name", "acme-ci"); err != nil {
			return err
		}
		if err := errors.Join(tx.SeedLeaderTerm(ctx), tx.SeedLeaderLease(ctx)); err != nil {
			return err
		}
		term, err := tx.TakeLeaderTerm(ctx)
		if err != nil {
			return err
		}
		return tx.TakeLeaderLease(ctx, "build-1", term, tx.Now()+24*3600_000)
	})
}

// sweep ends the events of runs and jobs, for which nobody waits.
func (p *painting) sweep() {
	p.Write(func(tx *store.Tx) error {
		for _, name := range []string{"__job_complete", "__workflow_complete"} {
			if _, err := tx.SweepEvents(p.t.Context(), db.SweepEventsParams{ProcessedAt: sql.NullInt64{Int64: tx.Now(), Valid: true}, OrgID: readtest.Org, EventName: name, MaxRows: 1000}); err != nil {
				return err
			}
		}
		return nil
	})
}

// lead makes the instances ready, and one more that drains.
func (p *painting) lead() {
	p.sweep()
	p.Write(func(tx *store.Tx) error {
		if err := tx.StartInstance(p.t.Context(), db.StartInstanceParams{InstanceID: "build-3", Name: "build-3", Version: "1", Url: "http://x", Now: tx.Now()}); err != nil {
			return err
		}
		for _, n := range []string{"build-1", "build-2", "build-3", "gpu-1"} {
			if _, err := tx.SetInstanceReady(p.t.Context(), tx.Now(), n); err != nil {
				return err
			}
			if _, err := tx.BeatInstanceWith(p.t.Context(), db.BeatInstanceWithParams{Now: tx.Now(), InstanceID: n, SettingsVersion: map[string]int64{"build-1": 1, "gpu-1": 1, "build-3": 1}[n], RegistryVersion: 8}); err != nil {
				return err
			}
		}
		_, err := tx.SetInstanceDraining(p.t.Context(), true, "build-3")
		return err
	})
}

func (p *painting) openSettings() *setting.Service {
	s, err := setting.New(setting.Deps{Store: p.Store, Env: p.Env, Log: obs.Discard()})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := s.Apply(p.t.Context(), setting.Change{Scope: setting.ClusterScope, By: "first owner", Set: map[string]json.RawMessage{"runRetentionDays": json.RawMessage("30"), "queueMaxDepth": json.RawMessage("2000")}}); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// fixedJobs are periodic jobs as they were last run.
type fixedJobs struct{ at time.Time }

func (f fixedJobs) List(context.Context) ([]periodic.Status, error) {
	status := func(name, about string, every, since, took time.Duration, failures int64, why string) periodic.Status {
		return periodic.Status{
			Job:          periodic.Job{Name: name, About: about, Every: every},
			ScheduledJob: db.ScheduledJob{LastRunAt: f.at.Add(-since).UnixMilli(), DurationMs: took.Milliseconds(), Failures: failures, LastError: why},
		}
	}
	return []periodic.Status{
		status("access-log", "deletes old entries of the access log", 24*time.Hour, 5*time.Hour, 800*time.Millisecond, 0, ""),
		status("events", "deletes expired internal events", time.Hour, 12*time.Minute, 90*time.Millisecond, 0, ""),
		status("logs", "deletes logs whose run is gone", 24*time.Hour, 5*time.Hour, 4*time.Second, 2, "remove logs/2026/02: permission denied"),
		status("runs", "deletes old runs with their jobs and logs", 24*time.Hour, 5*time.Hour, 21*time.Second, 0, ""),
	}, nil
}

func (fixedJobs) Trigger(context.Context, string) (periodic.Outcome, error) {
	return periodic.Outcome{Took: 90 * time.Millisecond, Report: []string{"deleted 12 events"}}, nil
}
