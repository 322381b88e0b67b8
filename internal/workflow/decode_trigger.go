package workflow

import (
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// Trigger types as the lock stores them (WF-12).
const (
	TypePush             = "push"
	TypeTag              = "tag"
	TypePullRequest      = "pr"
	TypeDispatch         = "dispatch"
	TypeGenericWebhook   = "generic_webhook"
	TypeSchedule         = "schedule"
	TypeKiciEvent        = "kici_event"
	TypeWorkflowComplete = "workflow_complete"
	TypeJobComplete      = "job_complete"
)

// triggerNames are the names under on:; docs/workflows.md maps them to the lock's.
var triggerNames = []string{
	"push", "pull_request", "issue_comment", "comment", "workflow_dispatch", "repository_dispatch", "generic_webhook", "schedule",
	"kici_event", "workflow_complete", "job_complete", "lifecycle", "workflows_failed_batch",
}

// pullRequestTypes are GitHub's defaults, which authors expect.
var pullRequestTypes = []string{"opened", "synchronize", "reopened"}

var onKeys = keys{name: "on", known: triggerNames, refused: refusedTrigger}

// refusedTrigger answers for triggers of GitHub that kici has not.
func refusedTrigger(name string) string {
	switch name {
	case "pull_request_target":
		return "use pull_request; pull requests of forks are never given secrets"
	case "workflow_run":
		return "use workflow_complete"
	case "workflow_call":
		return "reusable workflows are not supported; put shared steps into a script of the repository"
	case "issues", "pull_request_review", "pull_request_review_comment", "release", "create", "delete", "fork",
		"star", "watch", "status", "check_run", "check_suite", "deployment", "deployment_status", "discussion",
		"discussion_comment", "label", "milestone", "merge_group", "page_build", "public", "registry_package", "gollum",
		"branch_protection_rule", "review", "review_comment", "webhook":
		return "this version knows: " + strings.Join(triggerNames, ", ")
	}
	return ""
}

// triggers reads on: in its three forms: a name, a list of names, a map.
func (d *decoder) triggers(v value) []lock.Trigger {
	out := []lock.Trigger{}
	before := d.errors
	switch v.n.Kind {
	case mappingKind:
		d.object(v, onKeys, func(key string, v value) { out = append(out, d.trigger(key, v)...) })
	case sequenceKind, scalarKind:
		seen := map[string]bool{}
		d.list(v, true, func(_ int, v value) {
			name, ok := d.word(v)
			switch {
			case !ok:
			case !onKeys.has(name):
				d.unknownTrigger(v, name)
			case seen[name]:
				d.errorf(v, "keep one of them", "trigger %q is there already", name)
			default:
				seen[name] = true
				out = append(out, d.trigger(name, v.without())...)
			}
		})
	}
	if len(out) == 0 && d.errors == before {
		d.errorf(v, "add push, for instance", "on has no trigger, so nothing would ever start the workflow")
	}
	return out
}

func (d *decoder) unknownTrigger(v value, name string) {
	if cure := refusedTrigger(name); cure != "" {
		d.errorf(v, cure, "trigger %q is not supported", name)
		return
	}
	d.errorf(v, suggest.Cure(name, triggerNames), "unknown trigger %q", name)
}

// trigger reads one trigger; v is null for one without filters.
func (d *decoder) trigger(name string, v value) []lock.Trigger {
	one := func(t lock.Trigger) []lock.Trigger { return []lock.Trigger{t} }
	switch name {
	case "push":
		return d.push(v)
	case "pull_request":
		return one(d.pullRequest(v))
	case "issue_comment", "comment":
		return d.each(v, d.comment)
	case "workflow_dispatch":
		return one(d.workflowDispatch(v))
	case "repository_dispatch":
		t := lock.Trigger{Type: TypeDispatch}
		d.filters(v, keys{name: name, known: []string{"types", "repos"}}, func(key string, v value) {
			if key == "repos" {
				t.Repos = d.globs(v, false)
				return
			}
			t.Types = d.words(v)
		})
		return one(t)
	case "schedule":
		return d.each(v, d.schedule)
	case "generic_webhook":
		return d.each(v, d.genericWebhook)
	case "kici_event":
		return d.each(v, d.kiciEvent)
	case TypeLifecycle:
		return d.each(v, d.lifecycle)
	case TypeFailedBatch:
		return d.each(v, d.failedBatch)
	}
	return d.each(v, func(v value) lock.Trigger { return d.complete(name, v) })
}

var pushKeys = keys{
	name:  "push",
	known: []string{"branches", "branches-ignore", "tags", "tags-ignore", "paths", "paths-ignore", "repos"},
}

// push makes up to two triggers of the lock. As on GitHub, filters for branches alone leave tags out, and the other way
// round; path filters apply to branches only.
func (d *decoder) push(v value) []lock.Trigger {
	branches, tags := lock.Trigger{Type: TypePush}, lock.Trigger{Type: TypeTag}
	byBranch, byTag := false, false
	seen := map[string]bool{}
	d.filters(v, pushKeys, func(key string, v value) {
		seen[key] = true
		d.exclusive(v, key, seen)
		switch key {
		case "branches", "branches-ignore":
			byBranch = true
			branches.Branches = d.patterns(v, key)
		case "tags", "tags-ignore":
			byTag = true
			tags.Patterns = d.patterns(v, key)
		case "repos":
			branches.Repos = d.globs(v, false)
			tags.Repos = branches.Repos
		default:
			branches.Paths = d.paths(v, key)
		}
	})
	switch {
	case byBranch && !byTag:
		return []lock.Trigger{branches}
	case byTag && !byBranch:
		if len(branches.Paths) > 0 {
			d.errorf(v, "add branches:, or remove the paths", "path filters do not apply to tags")
		}
		return []lock.Trigger{tags}
	}
	return []lock.Trigger{branches, tags}
}

var pullRequestKeys = keys{
	name:  "pull_request",
	known: []string{"types", "branches", "branches-ignore", "source-branches", "paths", "paths-ignore", "repos"},
}

// pullRequestActions are the actions that a source may report.
var pullRequestActions = []string{
	"opened", "synchronize", "reopened", "closed", "edited", "labeled", "unlabeled", "ready_for_review", "converted_to_draft",
	"assigned", "unassigned", "review_requested", "review_request_removed", "locked", "unlocked", "milestoned", "demilestoned",
	"auto_merge_enabled", "auto_merge_disabled", "enqueued", "dequeued",
}

func (d *decoder) pullRequest(v value) lock.Trigger {
	t := lock.Trigger{Type: TypePullRequest, Events: pullRequestTypes}
	seen := map[string]bool{}
	d.filters(v, pullRequestKeys, func(key string, v value) {
		seen[key] = true
		d.exclusive(v, key, seen)
		switch key {
		case "types":
			t.Events = d.choices(v, pullRequestActions)
		case "branches", "branches-ignore":
			t.TargetBranches = d.patterns(v, key)
		case "source-branches":
			t.SourceBranches = d.patterns(v, key)
		case "repos":
			t.Repos = d.globs(v, false)
		default:
			t.Paths = d.paths(v, key)
		}
	})
	return t
}

var (
	scheduleKeys = keys{name: "schedule", known: []string{"cron", "timezone", "inputs"}}
	genericKeys  = keys{name: "generic_webhook", known: []string{"source", "events", "match", "not"}}
	eventKeys    = keys{name: "kici_event", known: []string{"name", "match", "not", "source"}}
)

func (d *decoder) schedule(v value) lock.Trigger {
	t := lock.Trigger{Type: TypeSchedule}
	good := d.good(func() {
		d.filters(v, scheduleKeys, func(key string, v value) { d.scheduleField(key, v, &t) })
	})
	if t.Cron == "" && good {
		d.errorf(v, "add - cron: '30 4 * * *'", "schedule has no cron")
	}
	return t
}

func (d *decoder) scheduleField(key string, v value, t *lock.Trigger) {
	if key == "inputs" {
		t.Inputs = d.inputs(v)
		if _, err := ScheduleInputs(t); err != nil { // nobody is there to give one
			d.errorf(v, "give it a default, or make it optional", "inputs of a schedule: %s", err)
		}
		return
	}
	s, ok := d.word(v)
	switch {
	case !ok:
	case key == "cron":
		t.Cron = strings.Join(strings.Fields(s), " ")
		if err := checkCron(t.Cron); err != nil {
			d.errorf(v, "minute hour day-of-month month day-of-week, such as '30 4 * * 1-5'", "invalid cron expression %q: %s", short(s), err)
		}
	default:
		t.Timezone = s
		if err := checkTimezone(s); err != nil {
			d.errorf(v, "use a name such as Europe/Berlin", "%s", err)
		}
	}
}

func (d *decoder) genericWebhook(v value) lock.Trigger {
	t := lock.Trigger{Type: TypeGenericWebhook}
	d.filters(v, genericKeys, func(key string, v value) {
		switch key {
		case "source":
			t.Source, _ = d.word(v)
		case "events":
			t.Events = d.words(v)
		case "match":
			t.Match = d.matchMap(v)
		case "not":
			t.Not = d.matchMap(v)
		}
	})
	return t
}

func (d *decoder) kiciEvent(v value) lock.Trigger {
	t := lock.Trigger{Type: TypeKiciEvent}
	d.filters(v, eventKeys, func(key string, v value) {
		switch key {
		case "name":
			t.EventName, _ = d.word(v)
		case "source":
			t.Source, _ = d.word(v)
		case "match":
			t.Match = d.matchMap(v)
		case "not":
			t.Not = d.matchMap(v)
		}
	})
	if t.EventName == "" {
		d.errorf(v, "add name:, the event's exact name", "kici_event has no name")
	}
	return t
}

// complete reads workflow_complete and job_complete.
func (d *decoder) complete(name string, v value) lock.Trigger {
	t := lock.Trigger{Type: name}
	what := keys{name: name, known: []string{"workflow", "status", "source"}}
	words := []string{string(ci.RunSuccess), string(ci.RunFailed), string(ci.RunCancelled)}
	if name == TypeJobComplete {
		what.known = append(what.known, "job")
		words = words[:0]
		for _, s := range ci.TerminalJobStatuses {
			words = append(words, string(s))
		}
	}
	d.filters(v, what, func(key string, v value) {
		switch key {
		case "workflow":
			t.Workflow, _ = d.word(v)
		case "job":
			t.Job, _ = d.word(v)
		case "source":
			t.Source, _ = d.word(v)
		case "status":
			t.Status = d.statuses(v, words)
		}
	})
	return t
}
