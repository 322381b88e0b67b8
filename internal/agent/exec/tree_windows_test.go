package exec

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain is what steps run, too: "parent" starts a "child" and goes, "child" writes to a file again and again.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "parent":
			if err := osexec.Command(os.Args[0], "child", os.Args[2]).Start(); err != nil {
				fmt.Println(err)
				os.Exit(9)
			}
			return
		case "child":
			for {
				f, err := os.OpenFile(os.Args[2], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					os.Exit(9)
				}
				_, _ = f.WriteString("x")
				_ = f.Close()
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	os.Exit(m.Run())
}

func windowsTree(t *testing.T) *Tree {
	t.Helper()
	tree, err := NewTree(Options{JobID: t.Name(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	if tree.Method() != MethodJob {
		t.Errorf("method %s", tree.Method())
	}
	return tree
}

func TestRunOnWindows(t *testing.T) {
	tree := windowsTree(t)
	for code, line := range map[int]string{0: "echo out", 3: "echo out& exit 3", 128: "echo out& exit 128"} {
		var out bytes.Buffer
		res, err := tree.Run(t.Context(), Spec{Step: 1, Argv: []string{"cmd", "/d", "/c", line}, Dir: t.TempDir(), Env: os.Environ(), Stdout: &out, Stderr: &out})
		if err != nil || res.ExitCode != code || strings.TrimSpace(out.String()) != "out" {
			t.Errorf("%s: %+v %v %q", line, res, err, out.String())
		}
	}
	if _, err := LookPath("no-such-program", os.Environ()); err == nil {
		t.Error("a program that is not there was found")
	}
}

// A process whose parent has gone ends with its step, and what an earlier step left running goes on until the job ends.
func TestReparentedProcessEndsWithItsStep(t *testing.T) {
	tree := windowsTree(t)
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "1"), filepath.Join(dir, "2")}
	for i, file := range files {
		res, err := tree.Run(t.Context(), Spec{Step: i + 1, Argv: []string{os.Args[0], "parent", file}, Dir: dir, Env: os.Environ()})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%+v %v", res, err)
		}
	}
	grows := func(file string) bool {
		size := func() int64 {
			info, err := os.Stat(file)
			if err != nil {
				return 0
			}
			return info.Size()
		}
		before := size()
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if size() > before+1 {
				return true
			}
		}
		return false
	}
	if !grows(files[0]) || !grows(files[1]) {
		t.Fatal("the children do not run: the test shows nothing")
	}
	if err := tree.KillStep(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if grows(files[1]) || !grows(files[0]) {
		t.Errorf("after the end of step 2: step 1 %t, step 2 %t", grows(files[0]), grows(files[1]))
	}
	if err := tree.Kill(t.Context()); err != nil || grows(files[0]) {
		t.Errorf("it survived the job: %v", err)
	}
}
