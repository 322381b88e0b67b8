package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
)

const forgeWorkflow = `name: ci
on: [push, pull_request]
jobs:
  build:
    runs-on: linux
    steps:
      - run: test -e README.md
  test:
    needs: build
    runs-on: linux
    steps:
      - run: |
          touch "%[1]s/began-${{ kici.sha }}"
          while [ -e "%[1]s/hold" ]; do sleep 0.05; done
`

const commentWorkflow = `name: retest
on:
  issue_comment: {source: pr, body-match: '/retest **'}
jobs:
  answer:
    runs-on: linux
    env: {BODY: "${{ kici.event.comment.body }}"}
    steps:
      - run: echo "$BODY" > "%[1]s/comment"
`

// forge is a server of kici with a source on a real Gitea.
type forge struct {
	*world
	g      *gitea
	tokens []string // that no log may show
}

const (
	forgeRepo   = "ann/app"
	forgeSource = "app"
	eventually  = 3 * time.Minute // what a loaded machine may take
)

// TestRealGitea is a repository's life on a real Gitea: pushes, pull requests, tags, comments, a new secret, and a forge that is
// away, that refuses the token, that does not deliver.
func TestRealGitea(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Gitea")
	}
	f := &forge{g: newGitea(t), world: newWorld(t, "", forgeWorkflow)}
	f.role.GapEvery, f.role.GapConfirm = time.Hour, time.Hour // however late a webhook comes, nothing else starts its run
	f.start(0)
	f.publish()
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"push", f.pushed},
		{"pull request", f.pullRequest},
		{"fork", f.fork},
		{"tag", f.tag},
		{"comment", f.comment},
		{"new secret", f.newSecret},
		{"forge away", f.away},
		{"token revoked", f.revoked},
		{"missed push", f.missed},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			f.world.t, f.g.t = t, t
			part.test(t)
		})
		if f.world.t, f.g.t = t, t; !ok {
			break // the parts build on each other
		}
	}
	f.ends()
}

// ends stops the server, whose log must show no token.
func (f *forge) ends() {
	f.world.t.Helper()
	f.stop()
	for _, token := range append(f.tokens, f.g.ann, f.g.bob) {
		if strings.Contains(f.log.String(), token) {
			f.world.t.Errorf("the server's log shows a token\n%s", f.log)
		}
	}
}

// publish makes the repository at Gitea, adds the source to the server, and installs the webhook: twice, which leaves one.
func (f *forge) publish() {
	t := f.world.t
	t.Helper()
	f.write(".kici/workflows/retest.yaml", strings.ReplaceAll(commentWorkflow, "%[1]s", f.dir))
	f.g.api(http.MethodPost, "/user/repos", f.g.ann, map[string]any{"name": "app", "private": true, "default_branch": "main"}, nil)
	f.g.api(http.MethodPut, "/repos/"+forgeRepo+"/collaborators/bob", f.g.ann, map[string]any{"permission": "read"}, nil)
	options, err := json.Marshal(map[string]any{"url": f.g.url(""), "repository": forgeRepo, "allowPrivate": true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.api.AddSource(t.Context(), client.NewSource{Kind: "gitea", Name: forgeSource, Options: options, Token: f.g.ann}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := f.api.InstallSourceHook(t.Context(), forgeSource); err != nil {
			t.Fatal(err)
		}
	}
	if hooks := f.hooks(); len(hooks) != 1 || !hooks[0].Active {
		t.Fatalf("webhooks at Gitea: %+v", hooks)
	}
}

type giteaHook struct {
	ID     int64    `json:"id"`
	Active bool     `json:"active"`
	Events []string `json:"events"`
}

func (f *forge) hooks() (list []giteaHook) {
	f.g.api(http.MethodGet, "/repos/"+forgeRepo+"/hooks", f.g.ann, nil, &list)
	return list
}

// write commits a file and returns the commit.
func (f *forge) write(name, text string) string {
	f.world.t.Helper()
	file := filepath.Join(f.dir, "repo", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		f.world.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		f.world.t.Fatal(err)
	}
	f.git("add", "-A")
	f.git("commit", "-q", "-m", "write "+name)
	return strings.TrimSpace(f.git("rev-parse", "HEAD"))
}

// send pushes as somebody to a repository.
func (f *forge) send(token, repo string, args ...string) {
	f.world.t.Helper()
	address := strings.Replace(f.g.url("/"+repo+".git"), "://", "://git:"+token+"@", 1)
	f.git(append([]string{"push", "-q", address}, args...)...)
}

// run waits until the run that an event started for a commit has ended.
func (f *forge) run(sha, event string) client.RunDetail {
	f.world.t.Helper()
	var found client.RunDetail
	f.until("the run of "+event+" has ended", eventually, func() bool {
		id := f.find(sha, event)
		if id == "" {
			return false
		}
		d, err := f.api.Run(f.world.t.Context(), id)
		found = d
		return err == nil && d.FinishedAt != nil
	})
	if found.Status != "success" {
		f.world.t.Fatalf("the run is %s: %s\n%+v\n%s", found.Status, found.FailureReason, found.Jobs, f.log)
	}
	return found
}

func (f *forge) find(sha, event string) string {
	list, err := f.api.Runs(f.world.t.Context(), allRuns())
	if err != nil {
		return ""
	}
	for _, r := range list.Runs {
		if r.SHA == sha && r.TriggerEvent == event {
			return r.ID
		}
	}
	return ""
}

// shown waits until Gitea shows success of the workflow and both its jobs beside a commit.
func (f *forge) shown(sha string) {
	f.world.t.Helper()
	want := map[string]string{"kici/ci": "success", "kici/ci/job/build": "success", "kici/ci/job/test": "success"}
	var got map[string]string
	f.until("Gitea shows success", eventually, func() bool {
		got = f.g.statuses(forgeRepo, sha)
		return maps.Equal(got, want)
	})
}

func (f *forge) pushed(t *testing.T) {
	sha := f.write("README.md", "one")
	f.send(f.g.ann, forgeRepo, "main")
	d := f.run(sha, "push")
	if d.Repo != forgeRepo || d.Branch != "main" || d.Actor != "ann" || d.TrustTier != "trusted" {
		t.Errorf("%+v", d)
	}
	f.shown(sha)
	if check, err := f.api.CheckSource(t.Context(), forgeSource); err != nil || !check.OK || check.DefaultBranch != "main" || check.SHA != sha {
		t.Errorf("%+v, %v", check, err)
	}
}

func (f *forge) pullRequest(t *testing.T) {
	f.git("checkout", "-q", "-b", "feature")
	f.write("feature.txt", "one")
	f.send(f.g.ann, forgeRepo, "feature")
	f.g.api(http.MethodPost, "/repos/"+forgeRepo+"/pulls", f.g.ann, map[string]any{"title": "A feature", "head": "feature", "base": "main"}, nil)
	first := strings.TrimSpace(f.git("rev-parse", "HEAD"))
	if d := f.run(first, "pr:opened"); d.Title != "A feature" || d.Ref != "refs/pull/1/head" {
		t.Errorf("%+v", d)
	}
	f.run(first, "push")
	f.shown(first)
	second := f.write("feature.txt", "two")
	f.send(f.g.ann, forgeRepo, "feature")
	f.run(second, "pr:synchronize")
	f.run(second, "push")
	f.shown(second)
	f.git("checkout", "-q", "main")
}

// fork makes two requests of somebody who may only read: from a fork, and by AGit, which Gitea shows as one from the repository
// itself. Both are ignored, and say so.
func (f *forge) fork(t *testing.T) {
	f.g.api(http.MethodPost, "/repos/"+forgeRepo+"/forks", f.g.bob, map[string]any{}, nil)
	f.git("checkout", "-q", "-b", "theirs")
	forked := f.write(".kici/workflows/ci.yaml", "on: [push, pull_request]\njobs: {evil: {runs-on: linux, steps: [{run: env}]}}\n")
	f.send(f.g.bob, "bob/app", "theirs")
	f.g.api(http.MethodPost, "/repos/"+forgeRepo+"/pulls", f.g.bob, map[string]any{"title": "From a fork", "head": "bob:theirs", "base": "main"}, nil)
	agit := f.write("more.txt", "x")
	f.send(f.g.bob, forgeRepo, "HEAD:refs/for/main", "-o", "topic=theirs")
	f.git("checkout", "-q", "main")
	f.until("both are refused visibly", eventually, func() bool {
		list, err := f.api.Deliveries(t.Context(), client.DeliveryQuery{Source: forgeSource, Status: "skipped", Limit: 50})
		n := 0
		for _, d := range list.Deliveries {
			if strings.Contains(d.Error, "comes from a fork") && d.RunID == "" {
				n++
			}
		}
		return err == nil && n == 2
	})
	for _, sha := range []string{forked, agit} {
		if id := f.find(sha, "pr:opened"); id != "" {
			t.Errorf("run %s of a stranger's commit", id)
		}
		if got := f.g.statuses(forgeRepo, sha); len(got) > 0 {
			t.Errorf("statuses of a stranger's commit: %v", got)
		}
	}
}

func (f *forge) tag(t *testing.T) {
	sha := strings.TrimSpace(f.git("rev-parse", "main"))
	f.git("tag", "-a", "v1.0", "-m", "one")
	f.send(f.g.ann, forgeRepo, "v1.0")
	if d := f.run(sha, "tag"); d.Ref != "refs/tags/v1.0" {
		t.Errorf("%+v", d)
	}
	list, err := f.api.Runs(t.Context(), allRuns())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range list.Runs {
		if r.Ref == "refs/tags/v1.0" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the tag started %d runs", n)
	}
}

func (f *forge) comment(t *testing.T) {
	f.g.api(http.MethodPost, "/repos/"+forgeRepo+"/issues/1/comments", f.g.ann, map[string]any{"body": "looks good"}, nil)
	f.g.api(http.MethodPost, "/repos/"+forgeRepo+"/issues/1/comments", f.g.ann, map[string]any{"body": "/retest $(touch pwned)"}, nil)
	f.until("the comment has run", eventually, func() bool {
		list, err := f.api.Runs(t.Context(), client.RunQuery{Workflow: "retest", Limit: 10})
		return err == nil && len(list.Runs) == 1 && list.Runs[0].Status == "success" && list.Runs[0].Branch == "main"
	})
	if text, err := os.ReadFile(filepath.Join(f.dir, "comment")); err != nil || strings.TrimSpace(string(text)) != "/retest $(touch pwned)" {
		t.Errorf("the job saw %q, %v", text, err)
	}
}

// newSecret rotates the webhook's secret without a gap: the old one is good until the forge has the new one.
func (f *forge) newSecret(t *testing.T) {
	step := func(what string) {
		t.Helper()
		sha := f.write("README.md", what)
		f.send(f.g.ann, forgeRepo, "main")
		d := f.run(sha, "push")
		if one, err := f.api.Delivery(t.Context(), d.DeliveryID, false); err != nil || strings.Contains(one.DeliveryID, ":gap:") {
			t.Errorf("%s: the push did not come by the webhook: %s, %v", what, one.DeliveryID, err)
		}
	}
	if r, err := f.api.RotateSourceSecret(t.Context(), forgeSource, false); err != nil || r.Installed || r.Secret == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	step("signed with the old secret")
	if _, err := f.api.InstallSourceHook(t.Context(), forgeSource); err != nil {
		t.Fatal(err)
	}
	if err := f.api.DropOldSourceSecret(t.Context(), forgeSource); err != nil {
		t.Fatal(err)
	}
	step("signed with the new secret")
	if r, err := f.api.RotateSourceSecret(t.Context(), forgeSource, true); err != nil || !r.Installed {
		t.Fatalf("%+v, %v", r, err)
	}
	step("signed with the newest secret")
	if hooks := f.hooks(); len(hooks) != 1 {
		t.Errorf("webhooks at Gitea: %+v", hooks)
	}
}

// held pushes a commit whose last job waits for release.
func (f *forge) held(text string) (sha string, release func()) {
	hold := filepath.Join(f.dir, "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		f.world.t.Fatal(err)
	}
	sha = f.write("README.md", text)
	f.send(f.g.ann, forgeRepo, "main")
	f.until("the last job runs", eventually, func() bool { return exists(filepath.Join(f.dir, "began-"+sha)) })
	return sha, func() {
		if err := os.Remove(hold); err != nil {
			f.world.t.Fatal(err)
		}
	}
}

// away stops the forge while a run goes on: the run does not care, and its statuses arrive once the forge is back.
func (f *forge) away(t *testing.T) {
	sha, release := f.held("the forge goes away")
	f.g.stop()
	release()
	d := f.run(sha, "push")
	f.until("the statuses wait", eventually, func() bool {
		now, err := f.api.Run(t.Context(), d.ID)
		return err == nil && now.Checks != nil && now.Checks.Waiting > 0 && now.Checks.Reason == "unreachable"
	})
	f.g.start()
	f.shown(sha)
}

// revoked takes the token away while a run goes on. The run says what to do, and with a new token the statuses arrive.
func (f *forge) revoked(t *testing.T) {
	sha, release := f.held("the token is revoked")
	f.g.api(http.MethodDelete, "/users/ann/tokens/"+f.g.tokenName, "ann", nil, nil)
	release()
	d := f.run(sha, "push")
	f.until("the run says that the token was refused", eventually, func() bool {
		now, err := f.api.Run(t.Context(), d.ID)
		return err == nil && now.Checks != nil && now.Checks.Reason == "denied" && strings.Contains(now.Checks.Problem(), "kici source set-token "+forgeSource)
	})
	if check, err := f.api.CheckSource(t.Context(), forgeSource); err != nil || check.OK || check.Message == "" {
		t.Errorf("%+v, %v", check, err)
	}
	var made struct {
		Token string `json:"sha1"`
	}
	f.g.api(http.MethodPost, "/users/ann/tokens", "ann", map[string]any{"name": "new", "scopes": []string{"write:repository", "write:user", "write:issue"}}, &made)
	f.tokens, f.g.ann = append(f.tokens, f.g.ann), made.Token
	if err := f.api.SetSourceToken(t.Context(), forgeSource, made.Token); err != nil {
		t.Fatal(err)
	}
	f.shown(sha)
}

// missed pushes while the webhook is off: comparing heads, as a server does when it starts, finds it.
func (f *forge) missed(t *testing.T) {
	f.ends()
	f.role.GapEvery, f.role.GapConfirm = time.Second, time.Second
	hook := f.hooks()[0]
	f.g.api(http.MethodPatch, fmt.Sprintf("/repos/%s/hooks/%d", forgeRepo, hook.ID), f.g.ann, map[string]any{"active": false, "events": hook.Events}, nil)
	sha := f.write("README.md", "nobody tells")
	f.send(f.g.ann, forgeRepo, "main")
	f.start(0)
	d := f.run(sha, "push")
	one, err := f.api.Delivery(t.Context(), d.DeliveryID, false)
	if err != nil || !strings.Contains(one.DeliveryID, ":gap:") {
		t.Errorf("delivery %s, %v", one.DeliveryID, err)
	}
	f.shown(sha)
}
