package local

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/sourcetest"
)

type repo struct {
	t   testing.TB
	dir string
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repo) commit(files map[string]string) string {
	r.t.Helper()
	for name, text := range files {
		full := filepath.Join(r.dir, name)
		if text == "" {
			_ = os.RemoveAll(full)
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o600)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "a title\n\nand a body")
	return r.git("rev-parse", "HEAD")
}

func open(t testing.TB, options Options) *Source {
	t.Helper()
	repos := git.NewRepos(git.ReposOptions{})
	t.Cleanup(repos.Close)
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(source.Config{Name: "demo", Repo: "acme/demo", Options: text, Secrets: map[string]string{"webhook": "top secret"}}, repos)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func delivery(ref, before, after string) source.Delivery {
	body, _ := json.Marshal(source.Payload{Ref: ref, Before: before, After: after, Pusher: source.PayloadPusher{Name: "ann"}})
	return source.Delivery{Event: "push", Body: body}
}

func origin(t *testing.T, bareRepo bool) sourcetest.Origin {
	t.Helper()
	r := repo{t, filepath.Join(t.TempDir(), "work")}
	if out, err := exec.Command("git", "init", "-q", "-b", "trunk", r.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	o := sourcetest.Origin{DefaultBranch: "trunk", Push: delivery}
	o.First = r.commit(map[string]string{".kici/workflows/ci.yaml": "one", "a.txt": "1", "dir/b.txt": "1"})
	o.Second = r.commit(map[string]string{".kici/workflows/ci.yaml": "two", ".kici/kici.lock.json": "{}", "c.txt": "1", "dir/b.txt": "2", "a.txt": ""})
	r.git("tag", "-a", "v1", "-m", "annotated")
	r.git("checkout", "-q", "-b", "empty", o.First)
	o.Bare = r.commit(map[string]string{".kici": ""})
	r.git("checkout", "-q", "trunk")
	dir := r.dir
	if bareRepo {
		dir += ".git"
		r.git("clone", "-q", "--bare", r.dir, dir)
	}
	o.Source = open(t, Options{Path: dir})
	o.Break = func() {
		if err := os.Rename(dir, dir+".gone"); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestConformance(t *testing.T) {
	t.Run("work tree", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Origin { return origin(t, false) })
	})
	t.Run("bare", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Origin { return origin(t, true) })
	})
}

func TestFilesNeverComeFromTheWorkTree(t *testing.T) {
	o := origin(t, false)
	path := o.Source.(source.Located).Path()
	if err := os.WriteFile(filepath.Join(path, ".kici/workflows/ci.yaml"), []byte("not committed"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := o.Source.Files(t.Context(), o.First)
	if err != nil || string(got[0].Data) != "one" {
		t.Errorf("%v %v", got, err)
	}
}

func TestPullRequests(t *testing.T) {
	o := origin(t, false)
	body := func(headRepo string) []byte {
		return []byte(`{"action":"opened","number":7,"pull_request":{"title":"Better","user":{"login":"ann"},` +
			`"head":{"ref":"feature","sha":"` + o.Second + `","repo":{"full_name":"` + headRepo + `"}},"base":{"ref":"trunk","sha":"` + o.First + `","repo":{"full_name":"acme/demo"}}}}`)
	}
	ev, err := o.Source.Normalize(t.Context(), source.Delivery{Event: "pull_request", Body: body("acme/demo")})
	if err != nil || ev.Type != "pr" || ev.Action != "opened" || ev.Number != 7 || ev.SHA != o.Second || ev.TargetBranch != "trunk" ||
		ev.SourceBranch != "feature" || ev.Fork || ev.Title != "Better" || ev.Actor != "ann" {
		t.Errorf("%+v %v", ev, err)
	}
	// D10: visible, and not run.
	ev, err = o.Source.Normalize(t.Context(), source.Delivery{Event: "pull_request", Body: body("mallory/demo")})
	if !errors.Is(err, source.ErrIgnored) || !ev.Fork || !strings.Contains(err.Error(), "fork") {
		t.Errorf("%+v %v, want ErrIgnored", ev, err)
	}
}

func TestPullRequestsChangeWhatTheirBranchChanged(t *testing.T) {
	o := origin(t, false)
	body := []byte(`{"action":"opened","number":7,"pull_request":{"head":{"ref":"empty","sha":"` + o.Bare + `"},"base":{"ref":"trunk","sha":"` + o.Second + `"}}}`)
	ev, err := o.Source.Normalize(t.Context(), source.Delivery{Event: "pull_request", Body: body})
	if err != nil || ev.Before != o.First || ev.BaseSHA != o.Second {
		t.Fatalf("%+v %v", ev, err)
	}
	files, err := o.Source.ChangedFiles(t.Context(), ev.Before, ev.SHA)
	if err != nil || len(files) != 1 || files[0] != ".kici/workflows/ci.yaml" {
		t.Errorf("%v %v", files, err)
	}
}

func TestOptions(t *testing.T) {
	repos := git.NewRepos(git.ReposOptions{})
	defer repos.Close()
	for text, want := range map[string]string{
		`{}`: "path is required", `{"path":"relative"}`: "absolute", `{"path":"/x","defaultBranch":"--x y"}`: "defaultBranch",
		`{"path":"/x","pth":1}`: "pth", `{"path":"/x\n"}`: "control", `[]`: "options",
	} {
		if _, err := New(source.Config{Name: "demo", Options: []byte(text)}, repos); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := New(source.Config{Options: []byte(`{"path":"/does/not/exist/yet"}`)}, repos); err != nil {
		t.Errorf("a repository that is away cannot be added: %v", err)
	}
}

func TestReceive(t *testing.T) {
	s := open(t, Options{Path: "/x"})
	body := []byte(`{"ref":"refs/heads/main"}`)
	header := func(kv ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(kv); i += 2 {
			h.Set(kv[i], kv[i+1])
		}
		return h
	}
	signature := source.Sign("top secret", body)
	for _, ok := range []string{signature, strings.TrimPrefix(signature, "sha256=")} {
		if err := s.Verify(source.Request{Header: header("X-Signature-256", ok), Body: body}); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "sha256=", "sha256=00", source.Sign("other", body), source.Sign("", body), signature + "00", strings.ToUpper("sha256=") + "zz"} {
		if err := s.Verify(source.Request{Header: header("X-Signature-256", bad), Body: body}); !errors.Is(err, source.ErrUnauthorized) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	s.webhook = ""
	if err := s.Verify(source.Request{Header: header("X-Signature-256", source.Sign("", body)), Body: body}); !errors.Is(err, source.ErrMisconfigured) {
		t.Errorf("a source without a secret: %v", err)
	}
	got, err := s.Read(source.Request{Header: header("X-Event-Type", "push", "X-Delivery-Id", "7", "Authorization", "x"), Body: body})
	if err != nil || got.Event != "push" || got.ID != "7" || got.Keyed || got.Headers["authorization"] != "" {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []source.Request{
		{Header: header(), Body: body},
		{Header: header("X-Event-Type", "push"), Body: []byte("[1]")},
		{Header: header("X-Event-Type", "push"), Body: []byte("{")},
		{Header: header("X-Event-Type", "push")},
	} {
		if _, err := s.Read(bad); !errors.Is(err, source.ErrInvalid) {
			t.Errorf("%s: %v", bad.Body, err)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	dir := f.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		f.Fatalf("%v %s", err, out)
	}
	s := open(f, Options{Path: dir, DefaultBranch: "main"})
	f.Add("push", []byte(`{"ref":"refs/heads/main","before":"","after":"1234567890123456789012345678901234567890"}`))
	f.Add("push", []byte(`{"ref":"refs/tags/v1","after":"0000000000000000000000000000000000000000"}`))
	f.Add("pull_request", []byte(`{"action":"opened","number":1,"pull_request":{"head":{"ref":"x","sha":"1234567890123456789012345678901234567890"},"base":{"ref":"main","sha":"1234567890123456789012345678901234567890"}}}`))
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		ev, err := s.Normalize(t.Context(), source.Delivery{Event: event, Body: body})
		if err != nil {
			if !errors.Is(err, source.ErrInvalid) && !errors.Is(err, source.ErrIgnored) {
				t.Errorf("%v", err)
			}
			return
		}
		if git.CheckSHA(ev.SHA) != nil || ev.Type == "" || ev.Fork || ev.Deleted || ev.Type == "push" && git.CheckRef(ev.Ref) != nil {
			t.Errorf("%+v", ev)
		}
	})
}
