package git

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a stand-in for kici that appends its arguments and input to a file.
func recorder(t *testing.T) (kici, record string) {
	t.Helper()
	dir := t.TempDir()
	kici, record = filepath.Join(dir, "it's kici"), filepath.Join(dir, "record")
	script := "#!/bin/sh\n{ echo \"args $*\"; cat; } >>" + quote(record) + "\nexit 1\n" // its failure must not matter
	if err := os.WriteFile(kici, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return kici, record
}

// recorded returns the lines of standard input since the last call.
func recorded(t *testing.T, record string) []string {
	t.Helper()
	text, err := os.ReadFile(record)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	_ = os.Remove(record)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "args ") {
			lines = append(lines, line)
		} else if line != "args webhook send --hook --url http://x/it's --secret-file /se cret" {
			t.Errorf("arguments: %s", line)
		}
	}
	return lines
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s sent\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const zeros = "0000000000000000000000000000000000000000"

func TestHooksOfABareRepository(t *testing.T) {
	kici, record := recorder(t)
	bare, work := newFixture(t, "--bare"), newFixture(t)
	o := HookOptions{Kici: kici, URL: "http://x/it's", SecretFile: "/se cret"}
	files, err := InstallHooks(t.Context(), bare.dir, o)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	a := work.commit("a", map[string]string{"x": "1"})
	work.git("push", "-q", bare.dir, "main", "main:refs/tags/v1", "main:refs/heads/$(touch${IFS}pwned)")
	wantLines(t, "a push of three refs", recorded(t, record), zeros+" "+a+" refs/heads/main", zeros+" "+a+" refs/tags/v1", zeros+" "+a+" refs/heads/$(touch${IFS}pwned)")
	b := work.commit("b", map[string]string{"x": "2"})
	work.git("push", "-q", bare.dir, "main", ":refs/tags/v1")
	wantLines(t, "an update and a delete", recorded(t, record), a+" "+b+" refs/heads/main", a+" "+zeros+" refs/tags/v1")
}

func TestHooksOfAWorkTree(t *testing.T) {
	kici, record := recorder(t)
	f := newFixture(t)
	if _, err := InstallHooks(t.Context(), f.dir, HookOptions{Kici: kici, URL: "http://x/it's", SecretFile: "/se cret"}); err != nil {
		t.Fatal(err)
	}
	a := f.commit("a", map[string]string{"x": "1"})
	wantLines(t, "the first commit", recorded(t, record), zeros+" "+a+" refs/heads/main")
	b := f.commit("b", map[string]string{"x": "2"})
	wantLines(t, "a commit", recorded(t, record), a+" "+b+" refs/heads/main")
	f.git("commit", "-q", "--amend", "-m", "b2")
	b2 := f.git("rev-parse", "HEAD")
	wantLines(t, "an amend", recorded(t, record), b+" "+b2+" refs/heads/main")
	f.git("checkout", "-q", "-b", "feature", a)
	c := f.commit("c", map[string]string{"y": "1"})
	wantLines(t, "a commit on a new branch", recorded(t, record), a+" "+c+" refs/heads/feature")
	f.git("rebase", "-q", "main")
	d := f.git("rev-parse", "HEAD")
	wantLines(t, "a rebase", recorded(t, record), c+" "+d+" refs/heads/feature")
	f.git("checkout", "-q", "main")
	f.git("merge", "-q", "--no-ff", "-m", "merge", "feature")
	wantLines(t, "a merge", recorded(t, record), b2+" "+f.git("rev-parse", "HEAD")+" refs/heads/main")
	f.git("checkout", "-q", "--detach")
	f.commit("detached", map[string]string{"z": "1"})
	wantLines(t, "a commit on no branch", recorded(t, record))
}

func TestInstallHooksKeepsForeignOnes(t *testing.T) {
	kici, record := recorder(t)
	bare, work := newFixture(t, "--bare"), newFixture(t)
	hook := filepath.Join(bare.dir, "hooks", "post-receive")
	mine := "#!/bin/sh\ncat >" + quote(filepath.Join(bare.dir, "mine")) + "\nexit 3\n"
	if err := os.WriteFile(hook, []byte(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	o := HookOptions{Kici: kici, URL: "http://x/it's", SecretFile: "/se cret"}
	if _, err := InstallHooks(t.Context(), bare.dir, o); !errors.Is(err, ErrForeignHook) || !strings.Contains(err.Error(), "--chain") {
		t.Fatalf("%v, want a refusal with a cure", err)
	}
	if text, _ := os.ReadFile(hook); string(text) != mine {
		t.Fatal("the present hook was changed by a refused install")
	}
	o.Chain = true
	for range 2 { // the second install replaces ours only
		if _, err := InstallHooks(t.Context(), bare.dir, o); err != nil {
			t.Fatal(err)
		}
	}
	a := work.commit("a", map[string]string{"x": "1"})
	work.git("push", "-q", bare.dir, "main")
	wantLines(t, "a push", recorded(t, record), zeros+" "+a+" refs/heads/main")
	if text, _ := os.ReadFile(filepath.Join(bare.dir, "mine")); string(text) != zeros+" "+a+" refs/heads/main\n" {
		t.Errorf("the chained hook got %q", text)
	}
}

func TestInstallHooksHonoursHooksPathAndWritesTheSecret(t *testing.T) {
	kici, _ := recorder(t)
	f := newFixture(t)
	f.git("config", "core.hooksPath", "my-hooks")
	files, err := InstallHooks(t.Context(), f.dir, HookOptions{Kici: kici, URL: "http://x", Secret: "s3cret"})
	if err != nil || len(files) != 4 || filepath.Dir(files[0]) != filepath.Join(f.dir, "my-hooks") {
		t.Errorf("%v %v", files, err)
	}
	info, err := os.Stat(filepath.Join(f.dir, ".git", "kici-secret"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("secret file: %v %v", info, err)
	}
	if text, _ := os.ReadFile(files[0]); strings.Contains(string(text), "s3cret") {
		t.Error("the secret stands in the hook, which everybody may read")
	}
	linked := filepath.Join(t.TempDir(), "linked")
	f.commit("a", map[string]string{"x": "1"})
	f.git("config", "--unset", "core.hooksPath")
	f.git("worktree", "add", "-q", linked, "-b", "other")
	files, err = InstallHooks(t.Context(), linked, HookOptions{Kici: kici, URL: "http://x"})
	if err != nil || filepath.Dir(files[0]) != filepath.Join(f.dir, ".git", "hooks") {
		t.Errorf("linked work tree: %v %v", files, err)
	}
	if out, err := exec.Command("sh", "-n", files[1]).CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}
