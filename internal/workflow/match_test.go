package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// workflowOn compiles a workflow with the given on: block.
func workflowOn(t testing.TB, on string) *lock.Workflow {
	t.Helper()
	text := "on:" + strings.ReplaceAll(on, "\n", "\n  ") + "\njobs: {a: {runs-on: linux, steps: [{run: x}]}}\n"
	f, problems := Compile([]Source{{Path: FilesDir + "/x.yaml", Data: []byte(text)}})
	if f == nil {
		t.Fatalf("%s\n%v", text, problems)
	}
	return &f.Workflows[0]
}

func push(branch string, files ...string) ci.Event {
	return ci.Event{Type: "push", Branch: branch, Ref: "refs/heads/" + branch, ChangedFiles: files}
}

func tag(name string) ci.Event { return ci.Event{Type: "tag", Tag: name, Ref: "refs/tags/" + name} }

func pull(action, target, from string) ci.Event {
	return ci.Event{Type: "pr", Action: action, TargetBranch: target, SourceBranch: from}
}

func payload(e ci.Event, v string) ci.Event {
	e.Payload = json.RawMessage(v)
	return e
}

func TestMatch(t *testing.T) {
	deleted := push("main")
	deleted.Deleted = true
	hook := ci.Event{Type: "generic_webhook", Source: "hook", Name: "build"}
	for _, c := range []struct {
		on   string
		ev   ci.Event
		want bool
	}{
		{" push", push("main"), true},
		{" push", tag("v1"), true}, // as on GitHub: no filter, both
		{" push", deleted, false},
		{" push", pull("opened", "main", "x"), false},
		{" [push, pull_request]", pull("opened", "main", "x"), true},
		{"\npush: {branches: [main]}", push("main"), true},
		{"\npush: {branches: [main]}", push("Main"), false},
		{"\npush: {branches: [main]}", tag("main"), false}, // branches alone leave tags out
		{"\npush: {tags: ['v*']}", tag("v1.2"), true},
		{"\npush: {tags: ['v*']}", push("v1.2"), false}, // and the other way round
		{"\npush: {tags: ['v*'], branches: [main]}", push("main"), true},
		{"\npush: {tags: ['v*'], branches: [main]}", tag("v1"), true},
		{"\npush: {tags-ignore: ['v*']}", tag("v1"), false},
		{"\npush: {tags-ignore: ['v*']}", tag("x"), true},
		{"\npush: {branches: ['release/*']}", push("release/1"), true},
		{"\npush: {branches: ['release/*']}", push("release/1/2"), false},
		{"\npush: {branches: ['release/**']}", push("release/1/2"), true},
		{"\npush: {branches: ['*', '!main']}", push("main"), false},
		{"\npush: {branches: ['!main', '*']}", push("main"), true}, // the last that matches decides
		{"\npush: {branches: ['r/**', '!r/**-alpha', 'r/x-alpha']}", push("r/1-alpha"), false},
		{"\npush: {branches: ['r/**', '!r/**-alpha', 'r/x-alpha']}", push("r/x-alpha"), true},
		{"\npush: {branches-ignore: [main, 'wip/**']}", push("wip/a/b"), false},
		{"\npush: {branches-ignore: [main, 'wip/**']}", push("dev"), true},
		{"\npush: {branches: [main]}", ci.Event{Type: "push", Ref: "refs/heads/main"}, true},
		{"\npush: {paths: ['**.go']}", push("main", "a/b.go"), true},
		{"\npush: {paths: ['**.go']}", push("main", "a/b.md"), false},
		{"\npush: {paths: ['**.go']}", push("main"), false}, // no changed file
		{"\npush: {paths: ['**.go']}", tag("v1"), true},     // paths do not apply to tags
		{"\npush: {paths: ['**.go', '!vendor/**']}", push("main", "vendor/x.go"), false},
		{"\npush: {paths: ['**.go', '!vendor/**']}", push("main", "vendor/x.go", "x.go"), true},
		{"\npush: {paths-ignore: ['docs/**']}", push("main", "docs/a"), false},
		{"\npush: {paths-ignore: ['docs/**']}", push("main", "docs/a", "b"), true},
		{"\npush: {paths-ignore: ['docs/**']}", push("main"), false},
		{"\npush: {branches: [main], paths: ['a']}", push("main", "b"), false},
		{" pull_request", pull("opened", "main", ""), true},
		{" pull_request", pull("closed", "main", ""), false}, // GitHub's default
		{"\npull_request: {types: [closed]}", pull("closed", "main", ""), true},
		{"\npull_request: {branches: [main]}", pull("opened", "dev", "main"), false},
		{"\npull_request: {source-branches: ['f/*']}", pull("opened", "main", "f/1"), true},
		{"\npull_request: {source-branches: ['**']}", pull("opened", "main", ""), false}, // WF-13
		{" workflow_dispatch", ci.Event{Type: "dispatch"}, true},
		{" workflow_dispatch", ci.Event{Type: "dispatch", Name: ManualEvent}, true},
		{" workflow_dispatch", ci.Event{Type: "dispatch", Action: "deploy"}, false},
		{" repository_dispatch", ci.Event{Type: "dispatch", Action: "deploy"}, true},
		{" repository_dispatch", ci.Event{Type: "dispatch"}, false},
		{"\nrepository_dispatch: {types: [deploy]}", ci.Event{Type: "dispatch", Action: "other"}, false},
		{" generic_webhook", hook, true},
		{"\ngeneric_webhook: {source: hook}", hook, true},
		{"\ngeneric_webhook: {source: other}", hook, false},
		{"\ngeneric_webhook: {events: [test, build]}", hook, true},
		{"\ngeneric_webhook: {events: [test]}", hook, false},
		{"\ngeneric_webhook: {match: {$.a: 1}}", hook, false},
		{"\ngeneric_webhook: {not: {$.a: 1}}", hook, true},
		{"\ngeneric_webhook: {match: {$.a: 1}}", payload(hook, `{"a":1.0}`), true},
		{"\ngeneric_webhook: {match: {$.a: '1'}}", payload(hook, `{"a":1}`), false},
		{"\ngeneric_webhook: {match: {$.a: [1, 2]}}", payload(hook, `{"a":2}`), true},
		{"\ngeneric_webhook: {match: {$.a: /^x.z$/i}}", payload(hook, `{"a":"XYZ"}`), true},
		{"\ngeneric_webhook: {match: {$.a: /^x.z$/}}", payload(hook, `{"a":"XYZ"}`), false},
		{"\ngeneric_webhook: {match: {'$.c[*].n': b}}", payload(hook, `{"c":[{"n":"a"},{"n":"b"}]}`), true},
		{"\ngeneric_webhook: {match: {'$.c[-1].n': b}}", payload(hook, `{"c":[{"n":"a"},{"n":"b"}]}`), true},
		{"\ngeneric_webhook: {match: {'$..n': b}}", payload(hook, `{"c":[{"n":"a"},{"d":{"n":"b"}}]}`), true},
		{"\ngeneric_webhook: {match: {\"$['x y'].*\": 2}}", payload(hook, `{"x y":{"p":1,"q":2}}`), true},
		{"\ngeneric_webhook: {match: {$.a: null}}", payload(hook, `{"a":null}`), true},
		{"\ngeneric_webhook: {match: {$.a: null}}", payload(hook, `{}`), false},
		{"\ngeneric_webhook: {match: {$.a: {b: 1}}}", payload(hook, `{"a":{"b":1}}`), true},
		{"\ngeneric_webhook: {match: {$.a: 1, $.b: 2}}", payload(hook, `{"a":1,"b":3}`), false},
		{"\ngeneric_webhook: {match: {$.a: 1}, not: {$.b: 3}}", payload(hook, `{"a":1,"b":3}`), false},
		{"\ngeneric_webhook: {match: {$.a: 1}}", payload(hook, `not json`), false},
		{"\ngeneric_webhook: {not: {$.a: 1}}", payload(hook, `not json`), false},
		{"\nkici_event: {name: x}", ci.Event{Type: "kici_event", Name: "x"}, true},
		{"\nkici_event: {name: x}", ci.Event{Type: "kici_event", Name: "xx"}, false},
		{"\nkici_event: {name: x, source: a/b}", ci.Event{Type: "kici_event", Name: "x", Repo: "a/c"}, false},
		{"\nworkflow_complete: {workflow: ci, status: failure}", payload(ci.Event{Type: "workflow_complete"}, `{"workflowName":"ci","status":"failed"}`), true},
		{"\nworkflow_complete: {workflow: ci, status: failure}", payload(ci.Event{Type: "workflow_complete"}, `{"workflowName":"ci","status":"success"}`), false},
		{"\njob_complete: {job: a}", payload(ci.Event{Type: "job_complete"}, `{"jobName":"b"}`), false},
	} {
		got := Match(workflowOn(t, c.on), c.ev)
		if got.Matched != c.want {
			t.Errorf("on:%s\n%+v\nmatched %v: %+v", c.on, c.ev, got.Matched, got.Checks)
		}
		if len(got.Checks) == 0 {
			t.Errorf("on:%s: nothing recorded", c.on)
		}
	}
}

// TestScheduleNeedsExpressionAndZone is WF-18.
func TestScheduleNeedsExpressionAndZone(t *testing.T) {
	w := workflowOn(t, "\nschedule: [{cron: '0 4 * * *', timezone: Europe/Berlin}, {cron: '0 4 * * *'}]")
	fire := func(zone string) Decision {
		return Match(w, payload(ci.Event{Type: "schedule"}, `{"cronExpression":"0 4 * * *","timezone":"`+zone+`"}`))
	}
	for zone, want := range map[string]int{"Europe/Berlin": 0, "UTC": 1, "": 1, "Asia/Tokyo": -1} {
		if got := fire(zone); got.Trigger != want || got.Matched != (want >= 0) {
			t.Errorf("%q: %+v", zone, got)
		}
	}
}

func TestMatchRecordsEveryCheckOfTheFirstMatch(t *testing.T) {
	w := workflowOn(t, "\npush: {branches: [dev]}\npull_request: {branches: [main], types: [opened]}\nworkflow_dispatch:")
	got := Match(w, pull("opened", "main", "x"))
	want := `{"matched":true,"trigger":1,"triggerType":"pr","checks":[` +
		`{"trigger":0,"check":"event","pattern":"push","value":"pr","passed":false},` +
		`{"trigger":1,"check":"event","pattern":"pr","value":"pr","passed":true},` +
		`{"trigger":1,"check":"types","pattern":"opened","value":"opened","passed":true},` +
		`{"trigger":1,"check":"branches","pattern":"main","value":"main","passed":true,"reason":"decided by main"}]}`
	if b, _ := json.Marshal(got); string(b) != want {
		t.Errorf("%s", b)
	}
	if got = Match(&lock.Workflow{}, push("main")); got.Matched || got.Trigger != -1 {
		t.Error("a workflow without triggers matched")
	}
}

// TestUnknownChangedFilesPassAndSaySo is WF-15.
func TestUnknownChangedFilesPassAndSaySo(t *testing.T) {
	w := workflowOn(t, "\npush: {branches: [main], paths: ['**.go']}")
	ev := push("main")
	ev.ChangedFilesErr = "fetch timed out"
	if got := Match(w, ev); !got.Matched || !got.Degraded || !strings.Contains(fmt.Sprint(got.Checks), "fetch timed out") {
		t.Errorf("%+v", got)
	}
	ev.Branch = "dev"
	if got := Match(w, ev); got.Matched || got.Degraded {
		t.Errorf("a degraded path filter must not overrule the branch: %+v", got)
	}
	if got := Match(workflowOn(t, " push"), ev); !got.Matched || got.Degraded {
		t.Errorf("no path filter, nothing degraded: %+v", got)
	}
	if !NeedsChangedFiles(w) || NeedsChangedFiles(workflowOn(t, " push")) {
		t.Error("NeedsChangedFiles")
	}
}

func TestHostileNamesAreOnlyText(t *testing.T) {
	w := workflowOn(t, "\npush: {branches: [main, 'x/*']}")
	for _, name := range []string{"$(x)", "../../etc", "a\nb", "--upload-pack=x", "", "\xff", strings.Repeat("x", 1<<20), "x/\x00"} {
		got := Match(w, push(name))
		if got.Matched != strings.HasPrefix(name, "x/") {
			t.Errorf("%.20q: %v", name, got.Matched)
		}
		if b, err := json.Marshal(got); err != nil || len(b) > 4096 {
			t.Errorf("%.20q: %d bytes, %v", name, len(b), err)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct{ pattern, yes, no string }{
		{"feature/*", "feature/a feature/", "feature/a/b feature xfeature/a"},
		{"feature/**", "feature/a feature/a/b", "feature"},
		{"*", "main v1 a.b", "a/b"},
		{"**", "main a/b/c", ""},
		{"*feature", "mafeature feature 1-feature", "a/feature features"},
		{"v2*", "v2 v2.0", "v2.9/x"},
		{"v[12].[0-9]+.[0-9]+", "v1.10.1 v2.0.0", "v3.0.0 v1.0 v1.10. v1a10.1"},
		{"**.js", "a.js x/y/a.js", "a.jsx"},
		{"*.jsx?", "page.js page.jsx", "page.j page.jsxx a/page.js"},
		{"docs/**/*.md", "docs/README.md docs/a/b.md docs/a/b/c.md", "docs.md a/docs/b.md docs/a.txt"},
		{"**/docs/**", "docs/a a/docs/b a/b/docs/c/d", "docs adocs/x"},
		{"**/README.md", "README.md js/README.md", "xREADME.md"},
		{"**/*src/**", "a/src/app.js my-src/code/js/app.js src/x", "src"},
		{"**/*-post.md", "my-post.md path/their-post.md", "post.md"},
		{"**/migrate-*.sql", "migrate-1.sql db/migrate-x.sql", "migrate.sql"},
		{"a**b", "ab axxb a/x/b", "a b"},
		{"[a-c]x[!0-9]", "axz bx-", "dxz ax1 ax/"},
		{"ab+c?", "ab abb abbc", "a abcc ac"},
		{`\*lit\[`, "*lit[", "xlit["},
		{"é?x", "éx x", "eex"},
		{"releases/**-alpha", "releases/10-alpha releases/beta/3-alpha", "releases/10"},
	} {
		if err := checkGlob(c.pattern); err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, n := range strings.Fields(c.yes) {
			if !matchGlob(c.pattern, n) {
				t.Errorf("%s must match %s", c.pattern, n)
			}
		}
		for _, n := range strings.Fields(c.no) {
			if matchGlob(c.pattern, n) {
				t.Errorf("%s must not match %s", c.pattern, n)
			}
		}
	}
	for _, bad := range []string{"", "+a", "?", "*+", "**?", "[", "[]", "[z-a]", `a\`, "a++", "\xff", strings.Repeat("a", maxGlob+1)} {
		if checkGlob(bad) == nil {
			t.Errorf("%.20q must be refused", bad)
		}
	}
}

// TestXC23GlobIsPolynomial: the classic of backtracking matchers.
func TestXC23GlobIsPolynomial(t *testing.T) {
	start := time.Now()
	if matchGlob(strings.Repeat("**a", 300)+"b", strings.Repeat("a", 4000)) {
		t.Error("matched")
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("took %v", d)
	}
}

// TestGlobProperties: escaped text matches itself and only itself; ** matches everything; * never crosses a slash.
func TestGlobProperties(t *testing.T) {
	name := rapid.StringMatching(`[a-z0-9._*?+\[\]!\\/-]{1,20}`)
	rapid.Check(t, func(t *rapid.T) {
		n, other := name.Draw(t, "name"), name.Draw(t, "other")
		var escaped strings.Builder
		for _, r := range n {
			escaped.WriteString(`\` + string(r))
		}
		if !matchGlob(escaped.String(), n) || n != other && matchGlob(escaped.String(), other) {
			t.Fatalf("%q as %q", n, escaped.String())
		}
		if ok, _ := matchOrdered([]string{"**"}, n); !ok {
			t.Fatalf("** does not match %q", n)
		}
		if matchGlob("*", n) == strings.Contains(n, "/") {
			t.Fatalf("* and %q", n)
		}
	})
}

// TestPathRuleProperties: WF-14 against its own words.
func TestPathRuleProperties(t *testing.T) {
	file := rapid.SampledFrom([]string{"a.go", "b.go", "docs/a.md", "docs/b.go", "x/y/z.txt"})
	pattern := rapid.SampledFrom([]string{"**.go", "docs/**", "a.go", "x/**", "*.md"})
	rapid.Check(t, func(t *rapid.T) {
		files := rapid.SliceOfN(file, 0, 4).Draw(t, "files")
		in := rapid.SliceOfN(pattern, 0, 2).Draw(t, "include")
		ex := rapid.SliceOfN(pattern, 0, 2).Draw(t, "exclude")
		var patterns []string
		patterns = append(patterns, in...)
		for _, p := range ex {
			patterns = append(patterns, "!"+p)
		}
		var left []string
		for _, f := range files {
			if !anyGlob(ex, f) {
				left = append(left, f)
			}
		}
		want := len(left) > 0
		if want && len(in) > 0 {
			want = false
			for _, f := range left {
				want = want || anyGlob(in, f)
			}
		}
		if got, _ := matchPaths(patterns, files); got != want {
			t.Fatalf("%v %v: %v", patterns, files, got)
		}
	})
}

// TestXC23JSONPathIsBounded: a path that visits too much gives up and says so.
func TestXC23JSONPathIsBounded(t *testing.T) {
	doc := strings.Repeat(`{"a":[`, 40) + strings.Repeat("{},", 3000) + "{}" + strings.Repeat("]}", 40)
	w := workflowOn(t, "\ngeneric_webhook: {match: {'$..a..*..*..*..*': 1}}")
	got := Match(w, payload(ci.Event{Type: "generic_webhook"}, doc))
	if got.Matched || !strings.Contains(fmt.Sprint(got.Checks), "too large to look through") {
		t.Errorf("%+v", got)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("main", "feature/**", "$.a[*]['b']..c", `{"a":[{"b":{"c":1}}]}`, "/x/i")
	f.Add("v1.2", "v[0-9]+.?*", "$..*", `[[[[]]]]`, "x")
	f.Add("\x00\n", "!**/[a-z]?", "$", ``, "/(/")
	f.Fuzz(func(t *testing.T, name, pattern, path, body, want string) {
		if err := checkGlob(pattern); err == nil && !strings.HasPrefix(pattern, "!") {
			a := matchGlob(pattern, name)
			if a != matchGlob(pattern, name) {
				t.Fatal("not deterministic")
			}
		}
		w := &lock.Workflow{On: []lock.Trigger{
			{Type: "generic_webhook", Match: map[string]any{path: want}, Not: map[string]any{path: []any{want}}},
			{Type: "push", Branches: []string{pattern}, Paths: []string{pattern}},
		}}
		for _, typ := range []string{"generic_webhook", "push"} {
			d := Match(w, ci.Event{Type: typ, Branch: name, ChangedFiles: []string{name}, Payload: json.RawMessage(body)})
			if typ == "generic_webhook" && d.Matched {
				t.Fatal("match and not of the same thing both passed")
			}
			if d.Matched != (d.Trigger >= 0) {
				t.Fatal(d)
			}
		}
	})
}

func BenchmarkMatchPush(b *testing.B) {
	w := workflowOn(b, "\npush: {branches: [main, 'release/**', '!release/*-rc'], paths: ['**.go', 'go.mod', '!**/testdata/**']}")
	ev := push("release/1.2", "README.md", "internal/a/testdata/x.go", "internal/b/c.go")
	b.ReportAllocs()
	for b.Loop() {
		if !Match(w, ev).Matched {
			b.Fatal("no match")
		}
	}
}
