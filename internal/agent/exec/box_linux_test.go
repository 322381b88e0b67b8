package exec

import (
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/agent/sandbox"
	"github.com/kici-go/kici/internal/ci"
)

// boxUser is nobody else's.
const boxUser = 61764

// TestConfined runs as a user without rights, because there is no sandbox around root: as root it starts itself again.
func TestConfined(t *testing.T) {
	if os.Geteuid() == 0 {
		asBoxUser(t)
		return
	}
	dir := t.TempDir()
	for _, d := range []string{"write", "tmp", "root"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	tree := newTree(t, Options{NoCgroup: true, Exclusive: true})
	c := sandbox.Config{Write: []string{filepath.Join(dir, "write")}, Tmp: filepath.Join(dir, "tmp"), Root: filepath.Join(dir, "root"), Network: ci.NetworkIsolated}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := tree.Confine(t.Context(), c, self)
	if errors.Is(err, sandbox.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil || len(r.Enforced) == 0 {
		t.Fatal(r, err)
	}
	run := func(step int, text string) (Result, string) {
		t.Helper()
		var out buffer
		s := script(step, &out, text)
		s.Dir, s.Env = filepath.Join(dir, "write"), []string{"PATH=/usr/bin:/bin"}
		res, err := tree.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err, out.String())
		}
		return res, out.String()
	}
	beat := func(file string) string {
		return `(while :; do sleep 0.05; echo x >> ` + filepath.Join(dir, "write", file) + `; done) >/dev/null 2>&1 &`
	}
	if res, out := run(1, "echo $$; echo out; exit 3"); res.ExitCode != 3 || !strings.Contains(out, "out") {
		t.Errorf("%+v %s", res, out)
	}
	if res, _ := run(1, "kill -TERM $$"); res.ExitCode != 143 || res.Signal != "SIGTERM" {
		t.Errorf("%+v", res)
	}
	first, second := filepath.Join(dir, "write", "first"), filepath.Join(dir, "write", "second")
	run(1, beat("first"))
	run(2, beat("second"))
	if !grows(first) || !grows(second) {
		t.Fatal("what steps leave running goes on")
	}
	if err := tree.KillStep(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if !stopped(first) || !grows(second) {
		t.Error("the end of a step is that of its own processes")
	}
	done := make(chan Result)
	go func() {
		var out buffer
		s := script(3, &out, "sleep 300")
		s.Env = []string{"PATH=/usr/bin:/bin"}
		res, _ := tree.Run(t.Context(), s)
		done <- res
	}()
	time.Sleep(300 * time.Millisecond)
	tree.Terminate(3)
	if res := <-done; res.Signal != "SIGTERM" {
		t.Errorf("a step that is asked to go: %+v", res)
	}
	if _, err := tree.Run(t.Context(), Spec{Step: 4, Argv: []string{filepath.Join(dir, "hidden")}, Env: []string{"PATH=/bin"}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a program that is nowhere: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hidden"), []byte("#!/bin/sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Run(t.Context(), Spec{Step: 4, Argv: []string{filepath.Join(dir, "hidden")}, Env: []string{"PATH=/bin"}}); err == nil || !strings.Contains(err.Error(), "sandboxPaths") {
		t.Errorf("a program that is not in the sandbox: %v", err)
	}
	tree.Close()
	if !stopped(second) {
		t.Error("something inside has outlived the job")
	}
}

// asBoxUser runs the same test in a process of another user.
func asBoxUser(t *testing.T) {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "kici-exec-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(base, "exec.test")
	if err := errors.Join(os.WriteFile(program, data, 0o755), os.Chown(base, boxUser, boxUser)); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(t.Context(), program, "-test.run=^TestConfined$", "-test.v")
	cmd.Dir, cmd.Env = base, []string{"PATH=/usr/bin:/bin", "TMPDIR=" + base}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: boxUser, Gid: boxUser}}
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err != nil:
		t.Errorf("%v\n%s", err, text)
	case strings.Contains(text, "--- SKIP: TestConfined") && !slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), "sandbox"):
		t.Skip(text)
	case !strings.Contains(text, "--- PASS: TestConfined"):
		t.Error(text)
	}
}
