package workflowcmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/workflow"
)

// invoke runs the commands as the root would and returns what they printed and their exit code.
func invoke(t *testing.T, dir, output string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c := &console.Console{Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now, Output: output}
	rootCmd := &cobra.Command{Use: "kici", SilenceErrors: true, SilenceUsage: true}
	rootCmd.AddCommand(Commands(c)...)
	rootCmd.SetArgs(append(args, "--dir", dir))
	rootCmd.SetOut(&out)
	rootCmd.SetErr(&errs)
	err := rootCmd.Execute()
	if err != nil {
		errs.WriteString(err.Error())
	}
	return out.String(), errs.String(), console.CodeOf(err)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInitWritesAWorkflowThatIsValidAndNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	if out, errs, code := invoke(t, dir, "table", "init"); code != 0 || out != ".kici/workflows/ci.yaml\n" {
		t.Fatalf("init: %d %q %q", code, out, errs)
	}
	if out, errs, code := invoke(t, dir, "table", "validate", "--strict"); code != 0 || out != "" {
		t.Fatalf("the starter is not clean: %d %s %s", code, out, errs)
	}
	write(t, dir, ".kici/workflows/ci.yaml", "mine")
	if _, errs, code := invoke(t, dir, "table", "init"); code != 1 || !strings.Contains(errs, "is there already") {
		t.Fatalf("second init: %d %q", code, errs)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, ".kici/workflows/ci.yaml")); string(b) != "mine" {
		t.Fatal("overwritten")
	}
	if out, _, code := invoke(t, dir, "json", "init", "--name", "nightly"); code != 0 || !strings.Contains(out, `"path": ".kici/workflows/nightly.yaml"`) {
		t.Fatalf("named init: %d %s", code, out)
	}
	if _, _, code := invoke(t, dir, "table", "init", "--name", "../x"); code != console.ExitUsage {
		t.Fatalf("bad name: %d", code)
	}
}

func TestInitDoesNotFollowLinksOut(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, ".kici")); err != nil {
		t.Skip(err)
	}
	if _, _, code := invoke(t, dir, "table", "init"); code != 1 {
		t.Fatalf("exit %d", code)
	}
	if entries, _ := os.ReadDir(elsewhere); len(entries) > 0 {
		t.Fatal("wrote through a link")
	}
}

func TestValidateReportsEverything(t *testing.T) {
	dir := t.TempDir()
	if out, errs, code := invoke(t, dir, "table", "validate"); code != 1 || !strings.Contains(out, "kici init") {
		t.Fatalf("empty repository: %d %q %q", code, out, errs)
	}
	write(t, dir, ".kici/workflows/a.yaml", "on: psuh\njobs:\n  a:\n    run-on: linux\n    runs-on: linux\n    steps: [{run: x}]\n")
	write(t, dir, ".kici/workflows/b.yaml", "on: push\npermissions: x\njobs:\n  a: {runs-on: linux, steps: [{run: x}]}\n")
	out, errs, code := invoke(t, dir, "table", "validate")
	want := `.kici/workflows/a.yaml:1:5: error: unknown trigger "psuh" (did you mean "push"?)
.kici/workflows/a.yaml:4:5: error: unknown key "run-on" in a job (did you mean "runs-on"?)
.kici/workflows/b.yaml:2:14: warning: permissions is ignored: kici gives jobs no token of the forge (remove it)
`
	if code != 1 || out != want || errs != "2 errors and 1 warning\n" {
		t.Fatalf("%d\n%s\n%s", code, out, errs)
	}
	out, _, code = invoke(t, dir, "json", "validate")
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 || r.OK || len(r.Problems) != 3 || r.Problems[0].Line != 1 || r.Result != "corrupt" {
		t.Fatalf("%d %v %+v", code, err, r)
	}
	if out, _, code = invoke(t, dir, "yaml", "validate"); code != 1 || !strings.Contains(out, "line: 4") {
		t.Fatalf("yaml: %d %s", code, out)
	}
	b := filepath.Join(dir, ".kici/workflows/b.yaml")
	if _, _, code = invoke(t, dir, "table", "validate", b); code != 0 {
		t.Fatalf("warnings must not fail: %d", code)
	}
	if out, _, code = invoke(t, dir, "table", "validate", "--strict", b); code != 1 || !strings.HasPrefix(out, b) {
		t.Fatalf("--strict: %d %s", code, out)
	}
	for _, args := range [][]string{{"validate", "/nowhere/x.yaml"}, {"validate", "workflowcmd_test.go"}} {
		if _, _, code = invoke(t, dir, "table", args...); code != console.ExitUsage {
			t.Errorf("%v: exit %d", args, code)
		}
	}
	if _, _, code = invoke(t, filepath.Join(dir, "nowhere"), "table", "validate"); code != console.ExitUsage {
		t.Errorf("--dir nowhere: exit %d", code)
	}
}

func TestCompileIsDeterministicAndChecks(t *testing.T) {
	dir := t.TempDir()
	if _, _, code := invoke(t, dir, "table", "compile"); code != 1 {
		t.Fatalf("nothing to compile: %d", code)
	}
	invoke(t, dir, "table", "init")
	if _, errs, code := invoke(t, dir, "table", "compile", "--check"); code != console.ExitNotClean || !strings.Contains(errs, "1 error") {
		t.Fatalf("--check without a lock: %d %s", code, errs)
	}
	lockFile := filepath.Join(dir, ".kici/kici.lock.json")
	if _, err := os.Stat(lockFile); err == nil {
		t.Fatal("--check wrote")
	}
	if _, errs, code := invoke(t, dir, "table", "compile"); code != 0 || !strings.Contains(errs, "wrote .kici/kici.lock.json") {
		t.Fatalf("compile: %d %s", code, errs)
	}
	first, err := os.ReadFile(lockFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, code := invoke(t, dir, "table", "compile"); code != 0 || !strings.Contains(errs, "is current") {
		t.Fatalf("again: %d %s", code, errs)
	}
	if again, _ := os.ReadFile(lockFile); !bytes.Equal(first, again) {
		t.Fatal("not deterministic")
	}
	if out, _, code := invoke(t, dir, "json", "compile", "--check"); code != 0 || !strings.Contains(out, `"current": true`) {
		t.Fatalf("--check: %d %s", code, out)
	}
	if _, _, code := invoke(t, dir, "table", "validate", "--strict"); code != 0 {
		t.Fatalf("validate with a lock: %d", code)
	}
	write(t, dir, ".kici/workflows/more.yaml", "on: push\njobs: {a: {runs-on: linux, steps: [{run: x}]}}\n")
	if out, _, code := invoke(t, dir, "json", "compile", "--check"); code != 2 || !strings.Contains(out, `"current": false`) {
		t.Fatalf("stale: %d %s", code, out)
	}
	if out, _, code := invoke(t, dir, "table", "validate"); code != 2 || !strings.Contains(out, "kici compile") {
		t.Fatalf("validate, stale: %d %s", code, out)
	}
	write(t, dir, ".kici/workflows/more.yaml", "on: push\n")
	if _, _, code := invoke(t, dir, "table", "compile"); code != 1 {
		t.Fatalf("broken: %d", code)
	}
	if again, _ := os.ReadFile(lockFile); !bytes.Equal(first, again) {
		t.Fatal("a failed compile changed the lock")
	}
}

func TestLinksAreRefused(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, elsewhere, "x.yaml", "on: push\njobs: {a: {runs-on: linux, steps: [{run: x}]}}\n")
	if err := os.MkdirAll(filepath.Join(dir, ".kici/workflows"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "x.yaml"), filepath.Join(dir, ".kici/workflows/x.yaml")); err != nil {
		t.Skip(err)
	}
	for _, verb := range []string{"validate", "compile"} {
		if out, _, code := invoke(t, dir, "table", verb); code != 1 || !strings.Contains(out, "symbolic links are not followed") {
			t.Errorf("%s: %d %s", verb, code, out)
		}
	}
}

func TestSchemaIsPrinted(t *testing.T) {
	var b bytes.Buffer
	c := &console.Console{Out: &b, Err: &b}
	cmd := schemaCmd(c)
	cmd.SetArgs(nil)
	if err := cmd.Execute(); err != nil || !bytes.Equal(b.Bytes(), workflow.Schema()) {
		t.Fatal(err)
	}
}

func TestExcerptOnATerminal(t *testing.T) {
	var out bytes.Buffer
	c := &console.Console{Out: &out, OutTerminal: true, NoColor: true, Getenv: func(string) string { return "" }}
	r := &report{
		Problems: []workflow.Problem{{File: "f", Line: 2, Col: 3, Message: "bad \x1b[31mred"}},
		sources:  map[string][]string{"f": {"a:", "\tb\x1b[0m: é"}},
	}
	if err := r.print(c); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "f:2:3: error: bad red\n    2 | \tb: é\n      | \t ^\n" {
		t.Errorf("%q", got)
	}
}
