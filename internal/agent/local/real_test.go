package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/agent/exec"
	"github.com/kici-go/kici/internal/ci"
)

// guardVariable makes this test binary a guard, or a run that will be killed.
const guardVariable = "KICI_TEST_LOCAL"

func guarded() {
	switch os.Getenv(guardVariable) {
	case "guard":
		if err := Guard(os.Args[len(os.Args)-1], os.Stdin, quiet()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "victim":
		victim()
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func runGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := osexec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// repository is a checkout with one commit.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	runGit(t, dir, "init", "-q")
	write(t, dir, "kept", "old")
	write(t, dir, "gone", "x")
	write(t, dir, "d/inner", "x")
	write(t, dir, ".gitignore", "secret\n")
	runGit(t, dir, "add", ".")
	runGit(t, dir, "commit", "-qm", "first")
	return dir
}

// real runs jobs in the executor and returns the end and every line of the logs.
func real(t *testing.T, jobs string, o Options) (State, string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	place, err := OpenPlace(nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	o.Facts, o.Plan = flow(t, jobs)
	o.Facts.Event.SHA = o.Tree.SHA
	o.Work, o.Now, o.Log, o.Environ = place.Work, time.Now, quiet(), []string{"PATH=" + os.Getenv("PATH")}
	var mu sync.Mutex
	var log strings.Builder
	o.Line = func(l Line) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&log, "%s: %s\n", l.Job, l.Msg)
	}
	s := New(o).Run(func(State) {})
	place.Close()
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "kici-local-*", "*")); len(left) > 0 {
		t.Errorf("left on the disk: %v", left)
	}
	return s, log.String()
}

func TestJobsRunInTheAgentsExecutor(t *testing.T) {
	dir := repository(t)
	write(t, dir, "kept", "new")
	tree, err := Inspect(context.Background(), dir)
	if err != nil || !tree.Changed || tree.Branch != "main" || tree.Title != "first" || len(tree.SHA) != 40 {
		t.Fatalf("%+v %v", tree, err)
	}
	s, log := real(t, `
  a:
    runs-on: x
    outputs: {v: '${{ steps.s.outputs.v }}', leak: '${{ secrets.TOKEN }}'}
    steps:
      - {id: s, run: 'echo "v=seven" >> "$KICI_OUTPUT"; echo "$(cat kept) $EXTRA ${{ secrets.TOKEN }}"'}
  b:
    needs: a
    runs-on: x
    steps: [{run: 'echo "got ${{ needs.a.outputs.v }}"; exit 3'}]
`, Options{Tree: tree, Mode: Commit, Secrets: map[string]string{"TOKEN": "hunter2hunter2"}, Env: map[string]string{"EXTRA": "plus"}})
	if s.Status != ci.RunFailed || s.Reason != `b: step "Run echo \"got seven\"; exit 3" failed with exit code 3` && !strings.Contains(s.Reason, "exit code 3") {
		t.Errorf("%s %q", s.Status, s.Reason)
	}
	for _, want := range []string{"a: old plus ***", "b: got seven", "holds a secret value"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	if a := s.Jobs[0]; strings.Contains(log, "hunter2") || a.Outputs["v"] != "seven" || a.Outputs["leak"] != "" || len(a.Steps) < 2 {
		t.Errorf("%+v\n%s", a, log)
	}
}

func TestDirtyIsTheWorkingTreeWithoutWhatIsIgnored(t *testing.T) {
	dir := repository(t)
	outside := t.TempDir()
	write(t, outside, "inner", "precious")
	write(t, dir, "kept", "new")
	write(t, dir, "added", "x")
	write(t, dir, "secret", "x")
	if err := errors.Join(os.Remove(filepath.Join(dir, "gone")), os.RemoveAll(filepath.Join(dir, "d")), os.Symlink(outside, filepath.Join(dir, "d"))); err != nil {
		t.Fatal(err)
	}
	tree, err := Inspect(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	var log strings.Builder
	if err := tree.fillDirty(context.Background(), to, &log); err != nil {
		t.Fatal(err)
	}
	var got []string
	_ = filepath.WalkDir(to, func(path string, d fs.DirEntry, _ error) error {
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if rel, _ := filepath.Rel(to, path); !d.IsDir() {
			got = append(got, rel)
		}
		return nil
	})
	if strings.Join(got, " ") != ".gitignore added d kept" {
		t.Errorf("%v\n%s", got, &log)
	}
	if b, _ := os.ReadFile(filepath.Join(to, "kept")); string(b) != "new" {
		t.Errorf("kept is %q", b)
	}
	if b, _ := os.ReadFile(filepath.Join(outside, "inner")); string(b) != "precious" { // behind the link
		t.Error("a file outside was touched")
	}
	if target, _ := os.Readlink(filepath.Join(to, "d")); target != outside {
		t.Errorf("d leads to %q", target)
	}
}

// HEAD has a link where the working tree has a directory: what is written goes to the copy, not through the link.
func TestDirtyNeverWritesThroughALink(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	runGit(t, dir, "init", "-q")
	write(t, outside, "f", "precious")
	if err := os.Symlink(outside, filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	runGit(t, dir, "add", ".")
	runGit(t, dir, "commit", "-qm", "link")
	if err := os.Remove(filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "d/f", "mine")
	tree, err := Inspect(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := tree.fillDirty(context.Background(), to, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	copied, _ := os.ReadFile(filepath.Join(to, "d", "f"))
	kept, _ := os.ReadFile(filepath.Join(outside, "f"))
	if string(copied) != "mine" || string(kept) != "precious" {
		t.Errorf("copy %q, outside %q", copied, kept)
	}
}

func TestInPlaceAndWhatModesNeed(t *testing.T) {
	dir := t.TempDir()
	tree, err := Inspect(context.Background(), dir)
	if err != nil || tree.Git || tree.Check(Commit) == nil || tree.Check(Dirty) == nil || tree.Check(InPlace) != nil {
		t.Fatalf("%+v %v", tree, err)
	}
	s, log := real(t, "  a: {runs-on: x, steps: [{run: 'echo made > here'}]}\n", Options{Tree: tree, Mode: InPlace})
	if b, _ := os.ReadFile(filepath.Join(dir, "here")); s.Status != ci.RunSuccess || string(b) != "made\n" {
		t.Errorf("%s %q\n%s", s.Status, b, log)
	}
	runGit(t, dir, "init", "-q")
	if tree, err = Inspect(context.Background(), dir); err != nil || !tree.Git || tree.Check(Commit) == nil || tree.Check(Dirty) != nil {
		t.Errorf("without a commit: %+v %v", tree, err)
	}
	if err := tree.fillDirty(context.Background(), t.TempDir(), &strings.Builder{}); err != nil {
		t.Error(err)
	}
}

func TestNameOf(t *testing.T) {
	for origin, want := range map[string]string{
		"https://host/acme/shop.git": "acme/shop", "git@host:acme/shop.git": "acme/shop", "ssh://git@host:22/group/sub/shop": "sub/shop",
		"/srv/git/shop.git": "git/shop", "": "",
	} {
		if got := nameOf(origin); got != want {
			t.Errorf("%q: %q, want %q", origin, got, want)
		}
	}
}

func TestReadSecrets(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "s", "# a comment\nA=one # two\n\nB<<END\n# text\nline\nEND\n")
	got, err := ReadSecrets(filepath.Join(dir, "s"))
	if err != nil || len(got) != 2 || got["A"] != "one # two" || got["B"] != "# text\nline" {
		t.Errorf("%q %v", got, err)
	}
	write(t, dir, "bad", "\nnonsense\n")
	if _, err := ReadSecrets(filepath.Join(dir, "bad")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}

// victim is a run whose process will be killed: its step leaves a process behind and waits.
func victim() {
	place, err := OpenPlace([]string{"env", guardVariable + "=guard", os.Args[0]}, quiet())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	t := &testing.T{}
	f, p := flow(t, "  a: {runs-on: x, steps: [{run: 'setsid sleep 1000 & echo pid=$!; echo pid=$$; sleep 1000'}]}\n")
	New(Options{
		Tree: Tree{Root: os.Getenv("KICI_TEST_ROOT")}, Mode: InPlace, Plan: p, Facts: f, Work: place.Work, Now: time.Now, Log: quiet(),
		Environ: []string{"PATH=" + os.Getenv("PATH")}, Line: func(l Line) { fmt.Println(l.Msg) },
	}).Run(func(State) {})
}

// A run that is killed leaves neither a directory nor a process: its guard ends what it left.
func TestAKilledRunLeavesNothing(t *testing.T) {
	if exec.StartTime(os.Getpid()) == 0 {
		t.Skip("this system does not tell when a process started")
	}
	tmp := t.TempDir()
	cmd := osexec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), guardVariable+"=victim", "TMPDIR="+tmp, "KICI_TEST_ROOT="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 2 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid="); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil || len(pids) != 2 {
		t.Fatal(pids, err)
	}
	_ = cmd.Wait()
	eventually(t, func() bool {
		left, _ := filepath.Glob(filepath.Join(tmp, "kici-local-*", "run-*"))
		return len(left) == 0 && exec.StartTime(pids[0]) == 0 && exec.StartTime(pids[1]) == 0
	})
}

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to that")
		}
	}
}
