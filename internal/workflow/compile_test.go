package workflow

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kici-go/kici/internal/workflow/lock"
)

var update = flag.Bool("update", false, "rewrite golden files")

func source(t testing.TB, name string) Source {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return Source{Path: FilesDir + "/" + filepath.Base(name), Data: b}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (run with -update if it is right):\n%s", name, d)
	}
}

func report(problems []Problem) []byte {
	var b bytes.Buffer
	for _, p := range problems {
		word := "error"
		if p.Warning {
			word = "warning"
		}
		fmt.Fprintf(&b, "%s [%s] %s\n", word, p.Field, strings.TrimPrefix(p.Error(), FilesDir+"/"))
	}
	return b.Bytes()
}

func yamlFiles(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatal("no test data", err)
	}
	return names
}

func TestGolden(t *testing.T) {
	for _, name := range yamlFiles(t, "good") {
		f, problems := Compile([]Source{source(t, name)})
		golden(t, name+".problems", report(problems))
		if f == nil {
			t.Errorf("%s does not compile", name)
			continue
		}
		b, err := Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".lock.json", b)
	}
	for _, name := range yamlFiles(t, "bad") {
		f, problems := Compile([]Source{source(t, name)})
		golden(t, name+".problems", report(problems))
		if f != nil {
			t.Errorf("%s compiles", name)
		}
		for _, p := range problems {
			if p.Line == 0 || p.Col == 0 {
				t.Errorf("%s: no place: %v", name, p)
			}
		}
	}
}

// TestLockRoundTrip: what Compile makes, Load reads back as the same value, and finds no fault with it.
func TestLockRoundTrip(t *testing.T) {
	for _, name := range yamlFiles(t, "good") {
		s := source(t, name)
		f, _ := Compile([]Source{s})
		b, err := Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		again, result, problems := Load([]Source{s, {Path: LockPath, Data: b}})
		if result != OK || len(problems) > 0 {
			t.Fatalf("%s: %v %v", name, result, problems)
		}
		if d := cmp.Diff(asJSON(t, f), asJSON(t, again)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCompileDoesNotDependOnOrder(t *testing.T) {
	a, b := source(t, "testdata/good/ci.yaml"), source(t, "testdata/good/everything.yaml")
	x, _ := Compile([]Source{a, b})
	y, _ := Compile([]Source{b, a})
	if asJSON(t, x) != asJSON(t, y) {
		t.Error("order of files matters")
	}
	crlf := Source{Path: a.Path, Data: bytes.ReplaceAll(a.Data, []byte("\n"), []byte("\r\n"))}
	z, problems := Compile([]Source{crlf, b})
	if z == nil || z.ContentHash != x.ContentHash {
		t.Error("line ends change the hash", problems)
	}
}

const tiny = "on: push\njobs: {a: {runs-on: linux, steps: [{run: x}]}}\n"

func TestLoadPrecedence(t *testing.T) {
	yaml := Source{Path: FilesDir + "/a.yaml", Data: []byte(tiny)}
	f, _ := Compile([]Source{yaml})
	encoded, err := Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	locked := Source{Path: LockPath, Data: encoded}
	foreign := strings.ReplaceAll(string(encoded), FilesDir+"/a.yaml", ".kici/main.go")
	for _, c := range []struct {
		name  string
		files []Source
		want  Result
		says  string
	}{
		{"nothing", nil, Missing, ""},
		{"only a stray file", []Source{{Path: ".kici/a.yaml", Data: []byte(tiny)}}, Missing, "is not read"},
		{"readme only", []Source{{Path: FilesDir + "/README.md"}}, Missing, ""},
		{"yaml", []Source{yaml}, OK, ""},
		{"nested yaml", []Source{yaml, {Path: FilesDir + "/x/b.yaml"}}, OK, "is not read"},
		{"yaml and lock", []Source{yaml, locked}, OK, ""},
		{"lock of a program", []Source{{Path: LockPath, Data: []byte(foreign)}}, OK, ""},
		{"yaml changed", []Source{{Path: yaml.Path, Data: []byte(tiny + "#\n")}, locked}, Drift, "kici compile"},
		{"yaml added", []Source{yaml, {Path: FilesDir + "/b.yaml", Data: []byte(tiny)}, locked}, Drift, "kici compile"},
		{"yaml deleted", []Source{locked}, Drift, "kici compile"},
		{"broken yaml", []Source{{Path: yaml.Path, Data: []byte("on: [")}}, Corrupt, "invalid YAML"},
		{"same name twice", []Source{yaml, {Path: FilesDir + "/b.yml", Data: []byte("name: a\n" + tiny)}}, Corrupt, "same name"},
	} {
		f, result, problems := Load(c.files)
		if result != c.want || (f != nil) != (result == OK) {
			t.Errorf("%s: %v, lock %v, %v", c.name, result, f != nil, problems)
		}
		if got := string(report(problems)); !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%s: says %q, want %q", c.name, got, c.says)
		}
	}
}

// TestXC20CorruptIsNotMissing: a lock that cannot be used is corrupt and says why; it is never taken for absent.
func TestXC20CorruptIsNotMissing(t *testing.T) {
	yaml := Source{Path: FilesDir + "/a.yaml", Data: []byte(tiny)}
	good, _ := Compile([]Source{yaml})
	change := func(f func(*lock.Workflow)) string {
		b, _ := json.Marshal(good)
		var c lock.File
		_ = json.Unmarshal(b, &c)
		f(&c.Workflows[0])
		b, _ = json.Marshal(c)
		return string(b)
	}
	for text, says := range map[string]string{
		"":                                  "not valid JSON",
		"{":                                 "not valid JSON",
		"null":                              "no format",
		"[]":                                "must be",
		`{"format":"kici/1","workflows":3}`: "workflows must be",
		`{"format":"kici/1","workflows":[{"name":"x","jobs":[]}]}`:                                     "1 to 2000 jobs",
		change(func(w *lock.Workflow) { w.Jobs[0].Needs = []lock.Need{{Job: "no"}} }):                  "does not exist",
		change(func(w *lock.Workflow) { w.Jobs[0].Needs = []lock.Need{{Job: "a"}} }):                   "needs itself",
		change(func(w *lock.Workflow) { w.Jobs[0].Name = "a b" }):                                      "name of a job",
		change(func(w *lock.Workflow) { w.Jobs = append(w.Jobs, w.Jobs[0]) }):                          "there twice",
		change(func(w *lock.Workflow) { w.Jobs[0].Steps[0].Uses = "evil" }):                            "not supported",
		change(func(w *lock.Workflow) { w.Jobs[0].If = "1 +" }):                                        "arithmetic",
		change(func(w *lock.Workflow) { w.Jobs[0].Env = map[string]string{"A": "${{ q }}"} }):          "unknown context",
		change(func(w *lock.Workflow) { w.Jobs[0].RunsOn.Exclude = []string{"LINUX"} }):                "both required and excluded",
		change(func(w *lock.Workflow) { w.Jobs[0].RunsOn.Exclude = []string{"/^lin/"} }):               "both required and excluded",
		change(func(w *lock.Workflow) { w.Jobs[0].RunsOn.Exclude = []string{"/(/"} }):                  "label pattern",
		change(func(w *lock.Workflow) { w.Jobs[0].RunsOn.Labels = nil }):                               "no label",
		change(func(w *lock.Workflow) { w.On[0].Branches = []string{"["} }):                            "invalid pattern",
		change(func(w *lock.Workflow) { w.On[0].Match = map[string]any{"$.a": "/(/"} }):                "invalid pattern",
		change(func(w *lock.Workflow) { w.On[0].Inputs = map[string]lock.Input{"a": {Pattern: "("}} }): "missing closing",
		change(func(w *lock.Workflow) { w.Name = "" }):                                                 "must be one line",
	} {
		f, result, problems := Load([]Source{yaml, {Path: LockPath, Data: []byte(text)}})
		if f != nil || result != Corrupt || !strings.Contains(string(report(problems)), says) {
			t.Errorf("%.60q: %v %v, want %q", text, result, problems, says)
		}
	}
}

// TestXC22FormatNamesWhoMustAct: foreign and newer formats are refused with the one who has to do something.
func TestXC22FormatNamesWhoMustAct(t *testing.T) {
	for text, says := range map[string]string{
		`{"schemaVersion":29,"workflows":[]}`: "another program (schemaVersion 29)",
		`{"format":"kici/2"}`:                 "the operator upgrades kici",
		`{"format":"other"}`:                  "unknown lock file format",
	} {
		_, result, problems := Load([]Source{{Path: LockPath, Data: []byte(text)}})
		if result != Corrupt || len(problems) != 1 || !strings.Contains(problems[0].Error(), says) || problems[0].Cure == "" {
			t.Errorf("%s: %v %v", text, result, problems)
		}
	}
}

func TestSymbolicLinksAndSubmodulesAreRefused(t *testing.T) {
	plain := Source{Path: FilesDir + "/a.yaml", Data: []byte(tiny)}
	for _, path := range []string{Dir, FilesDir, LockPath, FilesDir + "/b.yaml"} {
		for _, mode := range []string{"120000", "160000"} {
			f, result, problems := Load([]Source{plain, {Path: path, Mode: mode, Data: []byte("/etc/passwd")}})
			if f != nil || result != Corrupt || len(problems) != 1 || problems[0].File != path || !strings.Contains(problems[0].Message, "not followed") {
				t.Errorf("%s %s: %v %v", path, mode, result, problems)
			}
		}
	}
}

// TestXC23HostileFiles: every bound bites with a sentence, before it costs anything.
func TestXC23HostileFiles(t *testing.T) {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'k'; c++ {
		laughs += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	job := func(extra string) string {
		return "on: push\njobs:\n  a:\n    runs-on: linux\n    steps: [{run: x}]\n" + extra
	}
	many := func(n int, f string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, f, i)
		}
		return b.String()
	}
	values := "[" + strings.TrimSuffix(many(100, "%d, "), ", ") + "]"
	deepAnchors := "a0: &a0 [x]\n" + many(60, "a%[1]d1: &a%[1]d1 [x]\n")
	for i := 1; i < 60; i++ {
		deepAnchors = fmt.Sprintf("%sc%d: &c%d [[*%s]]\n", deepAnchors, i, i, map[bool]string{true: "a0", false: fmt.Sprintf("c%d", i-1)}[i == 1])
	}
	for name, c := range map[string]struct{ text, says string }{
		"billion laughs":  {laughs, "values when its anchors are followed"},
		"deep anchors":    {deepAnchors, "nests deeper than 50 when its anchors are followed"},
		"anchor circle":   {"on: push\njobs: &a {x: *a}\n", "contains itself"},
		"deep flow":       {"on: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nests deeper"},
		"deeper flow":     {strings.Repeat("[", 500_000), "invalid YAML"},
		"deep block":      {many(300, "%[1]d: ") + "x", "mapping values are not allowed"},
		"large file":      {"# " + strings.Repeat("x", MaxFileBytes), "larger than 1048576 bytes"},
		"10,000 cells":    {job("    strategy: {matrix: {a: " + values + ", b: " + values + "}}\n"), "matrix has 10000 combinations, at most 256"},
		"more cells":      {job("    strategy: {matrix: {a: " + values + ", b: " + values + ", c: " + values + "}}\n"), "more than 10000 combinations"},
		"many jobs":       {"on: push\njobs:\n" + many(2001, "  j%d: {runs-on: l, steps: [{run: x}]}\n"), "2001 jobs, at most 2000"},
		"many steps":      {"on: push\njobs:\n  a:\n    runs-on: l\n    steps:\n" + many(501, "    - run: x%d\n"), "501 steps, at most 500"},
		"huge regex":      {"on: {workflow_dispatch: {inputs: {a: {pattern: '" + strings.Repeat("a", 2000) + "'}}}}\njobs: {a: {runs-on: l, steps: [{run: x}]}}\n", "longer than 1000 bytes"},
		"nested repeats":  {"on: {workflow_dispatch: {inputs: {a: {pattern: '((a{1000}){1000}){1000}'}}}}\njobs: {a: {runs-on: l, steps: [{run: x}]}}\n", "invalid pattern"},
		"long glob":       {"on: {push: {branches: ['" + strings.Repeat("*a", 1000) + "']}}\njobs: {a: {runs-on: l, steps: [{run: x}]}}\n", "longer than 1024 bytes"},
		"deep expression": {job("    if: " + strings.Repeat("(", 10_000) + "\n"), "nests deeper"},
		"null byte":       {"on: push\x00", "not plain UTF-8"},
		"many mistakes":   {"on: push\njobs: {a: {runs-on: l, steps: [{run: x}]}}\n" + many(1000, "key%d: 1\n"), "800 more problems are not shown"},
	} {
		f, result, problems := Load([]Source{{Path: FilesDir + "/x.yaml", Data: []byte(c.text)}})
		got := string(report(problems))
		if f != nil || result != Corrupt || !strings.Contains(got, c.says) {
			t.Errorf("%s: %v %.300s, want %q", name, result, got, c.says)
		}
		if len(problems) > maxProblems+1 {
			t.Errorf("%s: %d problems", name, len(problems))
		}
	}
	var files []Source
	for i := range lock.MaxWorkflows + 1 {
		files = append(files, Source{Path: fmt.Sprintf("%s/%d.yaml", FilesDir, i), Data: []byte(tiny)})
	}
	if _, result, problems := Load(files); result != Corrupt || !strings.Contains(problems[0].Message, "501 workflow files") {
		t.Error(result, problems)
	}
	files = nil
	for i := range 6 {
		files = append(files, Source{Path: fmt.Sprintf("%s/%d.yaml", FilesDir, i), Data: []byte("#" + strings.Repeat("x", MaxFileBytes-10))})
	}
	if _, result, problems := Load(files); result != Corrupt || !strings.Contains(string(report(problems)), "larger than 5242880 bytes together") {
		t.Error(result, problems)
	}
	if _, result, problems := Load([]Source{{Path: LockPath, Data: make([]byte, lock.MaxBytes+1)}}); result != Corrupt || !strings.Contains(problems[0].Message, "larger than") {
		t.Error(result, problems)
	}
}

// TestAliasesCannotInflateTheLock: within the bounds of nodes, an anchored script may still be repeated; the lock's own bound holds.
func TestAliasesCannotInflateTheLock(t *testing.T) {
	text := "on: push\njobs:\n  a: &a\n    runs-on: linux\n    steps: [{run: '" + strings.Repeat("x", 900_000) + "'}]\n"
	for i := range 10 {
		text += fmt.Sprintf("  b%d: *a\n", i)
	}
	_, result, problems := Load([]Source{{Path: FilesDir + "/x.yaml", Data: []byte(text)}})
	if result != Corrupt || !strings.Contains(string(report(problems)), "lock file would be larger than") {
		t.Error(result, problems)
	}
}
