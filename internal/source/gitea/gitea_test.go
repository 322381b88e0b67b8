package gitea

import (
	"errors"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge/forgetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testSecret signed the webhooks of testdata, which were recorded from Gitea 1.26 and shortened.
const testSecret = "a secret of tests"

const (
	zero = "0000000000000000000000000000000000000000"
	sha1 = "a02933f44bc206f74fbcb066ac5741650ca98a60"
	sha2 = "ac95b6b34650028e567ddb14a2959170492d5a1b"
	base = "2ac21afae173a6cd1de7e81952cbed8543a9bc68"
)

func recorded(t testing.TB, name string) source.Request {
	t.Helper()
	return forgetest.Request(t, filepath.Join("testdata", name+".http"))
}

// TestRecordedWebhooks: each verifies, is named, and becomes the event that the source makes of it.
func TestRecordedWebhooks(t *testing.T) {
	pull := ci.Event{
		Type: "pr", Action: "opened", Number: 1, Title: "Add b", Ref: "refs/pull/1/head", SHA: sha1, BaseSHA: base, Before: base,
		SourceBranch: "feature", TargetBranch: "main", Branch: "feature", Actor: "ann",
	}
	with := func(ev ci.Event, change func(*ci.Event)) ci.Event { change(&ev); return ev }
	for name, want := range map[string]ci.Event{
		"push_branch":         {Type: "push", Ref: "refs/heads/main", Branch: "main", SHA: base, Before: "aa2cacce34592f4b7b87ebd73d30d5e9969b53ba", Actor: "ann"},
		"push_forgejo":        {Type: "push", Ref: "refs/heads/main", Branch: "main", SHA: base, Before: "aa2cacce34592f4b7b87ebd73d30d5e9969b53ba", Actor: "ann"},
		"push_new_branch":     {Type: "push", Ref: "refs/heads/feature", Branch: "feature", SHA: sha1, Actor: "ann"},
		"push_annotated_tag":  {Type: "tag", Ref: "refs/tags/v1.0", Tag: "v1.0", SHA: sha1, Actor: "ann"}, // the commit, not the tag's object
		"pull_request_opened": pull,
		"pull_request_synchronized": with(pull, func(ev *ci.Event) {
			ev.Action, ev.SHA = "synchronize", sha2
		}),
		"pull_request_label_updated": with(pull, func(ev *ci.Event) { ev.Action, ev.SHA = "labeled", sha2 }),
		"pull_request_merged": with(pull, func(ev *ci.Event) { // its base has moved to the merge
			ev.Action, ev.SHA, ev.Title = "closed", sha2, "Add b and c"
			ev.BaseSHA, ev.Before = "c28aaf6f1046c934bc97d52e1b77df1cda1f0440", "c28aaf6f1046c934bc97d52e1b77df1cda1f0440"
		}),
		"issue_comment_pull":   {Type: "comment", Action: "created", Number: 1, Title: "Add b", Comment: "/retest please", CommentOn: "pr", Actor: "ann"},
		"issue_comment_issue":  {Type: "comment", Action: "created", Number: 2, Title: "An issue", Comment: "hello", CommentOn: "issue", Actor: "ann"},
		"issue_comment_edited": {Type: "comment", Action: "edited", Number: 2, Title: "An issue", Comment: "hello again", CommentOn: "issue", Actor: "ann"},
	} {
		ev, err := normalize(t, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want.Repo, want.DefaultBranch, want.Source, want.Payload = forgetest.Repository, "main", "forge", ev.Payload
		if want.Type == "comment" { // the source adds the head of the default branch
			want.Branch, want.Ref, want.SHA = ev.Branch, ev.Ref, ev.SHA
		}
		if !reflect.DeepEqual(ev, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, ev, want)
		}
	}
}

func normalize(t *testing.T, name string) (ci.Event, error) {
	t.Helper()
	r := recorded(t, name)
	if err := (Dialect{}).Verify(testSecret, r); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	got, err := (Dialect{}).Read(r)
	if err != nil || len(got.ID) != 36 || got.Keyed || got.Headers["x-gitea-delivery"] != got.ID {
		t.Fatalf("%s: %+v, %v", name, got, err)
	}
	return forgetest.Open(t, Dialect{}, "").Normalize(t.Context(), got.Delivery)
}

// TestIgnored: what starts nothing says why, and is kept with what is known of it.
func TestIgnored(t *testing.T) {
	for name, why := range map[string]string{
		"push_deleted_tag":      "refs/tags/v0.9 was deleted",
		"push_test_delivery":    "test delivery",
		"pull_request_fork":     "comes from a fork",
		"pull_request_agit":     "comes from a fork", // whoever may read can make one
		"pull_request_reviewed": "a review",
	} {
		ev, err := normalize(t, name)
		if !errors.Is(err, source.ErrIgnored) || !strings.Contains(err.Error(), why) || ev.Repo == "" {
			t.Errorf("%s: %+v, %v; want ErrIgnored with %q", name, ev, err, why)
		}
	}
	for event, why := range map[string]string{"create": "comes as push too", "delete": "comes as push too", "fork": "knows push", "": "knows push"} {
		_, err := (Dialect{}).Parse(source.Delivery{Event: event, Body: []byte(`{"repository":{"full_name":"acme/web"},"ref":"v1","ref_type":"tag"}`)})
		if !errors.Is(err, source.ErrIgnored) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v; want ErrIgnored with %q", event, err, why)
		}
	}
}

// TestHeadThatIsGone: once the branch was deleted, ref is the forge's own and label still has the name; once the fork was
// deleted, there is no repository.
func TestHeadThatIsGone(t *testing.T) {
	d, err := (Dialect{}).Read(recorded(t, "pull_request_merged"))
	if err != nil {
		t.Fatal(err)
	}
	body := string(d.Body)
	d.Body = []byte(strings.Replace(body, `"ref": "feature"`, `"ref": "refs/pull/1/head"`, 1))
	if ev, err := (Dialect{}).Parse(d.Delivery); err != nil || ev.SourceBranch != "feature" || ev.Fork {
		t.Errorf("deleted branch: %+v, %v", ev, err)
	}
	start := strings.Index(body, `"repo": {`)
	last := strings.LastIndex(body, `"repo": {`)
	if start == last {
		t.Fatal("the recorded body has one repository")
	}
	d.Body = []byte(body[:last] + `"repo": null, "rest": {` + body[last+len(`"repo": {`):])
	if ev, err := (Dialect{}).Parse(d.Delivery); err != nil || !ev.Fork {
		t.Errorf("deleted fork: %+v, %v", ev, err)
	}
}

func TestVerify(t *testing.T) {
	body := []byte(`{"a":1}`)
	good := source.Sign(testSecret, body)
	for name, tc := range map[string]struct {
		header map[string]string
		ok     bool
		says   string
	}{
		"gitea":             {map[string]string{"X-Gitea-Signature": good[7:]}, true, ""},
		"forgejo":           {map[string]string{"X-Forgejo-Signature": good[7:]}, true, ""},
		"gogs":              {map[string]string{"X-Gogs-Signature": good[7:]}, true, ""},
		"hub":               {map[string]string{"X-Hub-Signature-256": good}, true, ""},
		"none":              {nil, false, "has no signature"},
		"empty":             {map[string]string{"X-Gitea-Signature": "", "X-Hub-Signature-256": "sha256="}, false, "has no signature"},
		"wrong":             {map[string]string{"X-Gitea-Signature": source.Sign("x", body)[7:]}, false, ""},
		"not hex":           {map[string]string{"X-Gitea-Signature": "zz"}, false, ""},
		"cut":               {map[string]string{"X-Gitea-Signature": good[7:60]}, false, ""},
		"wrong beside good": {map[string]string{"X-Gitea-Signature": "00", "X-Hub-Signature-256": good}, false, ""},
		"SHA-1 only":        {map[string]string{"X-Hub-Signature": "sha1=0000000000000000000000000000000000000000"}, false, "has no signature"},
		"form":              {map[string]string{"X-Gitea-Signature": "00", "Content-Type": "application/x-www-form-urlencoded"}, false, "application/json"},
	} {
		r := source.Request{Header: http.Header{}, Body: body}
		for k, v := range tc.header {
			r.Header.Set(k, v)
		}
		err := (Dialect{}).Verify(testSecret, r)
		if tc.ok != (err == nil) || !tc.ok && (!errors.Is(err, source.ErrUnauthorized) || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v", name, err)
		}
		if err := (Dialect{}).Verify("", r); err == nil {
			t.Errorf("%s: passes without a secret", name)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	full := map[string]string{"X-Gitea-Event": "push", "X-Gitea-Delivery": "1"}
	for name, tc := range map[string]struct {
		header map[string]string
		body   string
		says   string
	}{
		"no event":    {map[string]string{"X-Gitea-Delivery": "1"}, `{}`, "x-gitea-event"},
		"no delivery": {map[string]string{"X-Gitea-Event": "push"}, `{}`, "x-gitea-delivery"},
		"no body":     {full, "", "JSON object"},
		"a list":      {full, "[]", "JSON object"},
		"a form":      {full, "payload=%7B%7D", "JSON object"},
		"cut":         {full, `{"a":`, "JSON object"},
		"deep":        {full, strings.Repeat(`{"a":`, 100_000), "JSON object"},
	} {
		r := source.Request{Header: http.Header{}, Body: []byte(tc.body)}
		for k, v := range tc.header {
			r.Header.Set(k, v)
		}
		if _, err := (Dialect{}).Read(r); !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want ErrInvalid with %q", name, err, tc.says)
		}
	}
}

// TestHostile: what no forge sends is refused, and the refusal names the field.
func TestHostile(t *testing.T) {
	const repo = `"repository":{"full_name":"acme/web","default_branch":"main"}`
	push := func(ref, before, after string) string {
		return `{` + repo + `,"ref":"` + ref + `","before":"` + before + `","after":"` + after + `"}`
	}
	pull := func(number, branch, sha string) string {
		return `{` + repo + `,"action":"opened","pull_request":{"number":` + number + `,"head":{"label":"x","ref":"` + branch + `","sha":"` + sha +
			`","repo":{"full_name":"acme/web"}},"base":{"ref":"main","sha":"` + base + `","repo":{"full_name":"acme/web"}}}}`
	}
	s := forgetest.Open(t, Dialect{}, "")
	for name, tc := range map[string]struct{ event, body, says string }{
		"not JSON":            {"push", "\xff{", "push"},
		"deep":                {"push", strings.Repeat(`{"ref":`, 100_000), "push"},
		"no repository":       {"push", `{"ref":"refs/heads/x"}`, "repository.full_name"},
		"repository a number": {"push", `{"repository":7}`, "repository"},
		"no ref":              {"push", `{` + repo + `}`, "ref is missing"},
		"no after":            {"push", push("refs/heads/x", zero, ""), "after is missing"},
		"ref a number":        {"push", `{` + repo + `,"ref":7}`, "ref"},
		"after a list":        {"push", `{` + repo + `,"ref":"refs/heads/x","after":[]}`, "after"},
		"option as ref":       {"push", push("--upload-pack=x", zero, sha1), "ref"},
		"newline in ref":      {"push", push(`refs/heads/a\nb`, zero, sha1), "ref"},
		"NUL in ref":          {"push", push(`refs/heads/a\u0000b`, zero, sha1), "ref"},
		"path as ref":         {"push", push("refs/heads/../../x", zero, sha1), "ref"},
		"option as after":     {"push", push("refs/heads/x", zero, "--output=x"), "after"},
		"option as before":    {"push", push("refs/heads/x", "--output=x", sha1), "before"},
		"bad ref of a test":   {"push", push(`refs/heads/a\nb`, sha1, sha1), "ref"},
		"no pull request":     {"pull_request", `{` + repo + `,"action":"opened"}`, "pull_request is missing"},
		"no action":           {"pull_request", `{` + repo + `,"pull_request":{"number":1}}`, "action is missing"},
		"no number":           {"pull_request", pull("0", "x", sha1), "number"},
		"a huge number":       {"pull_request", pull("1e99", "x", sha1), "number"},
		"number too large":    {"pull_request", pull("99999999999999999999", "x", sha1), "number"},
		"no head":             {"pull_request", `{` + repo + `,"action":"opened","pull_request":{"number":1}}`, "head.sha"},
		"head a text":         {"pull_request", `{` + repo + `,"action":"opened","pull_request":{"number":1,"head":"x"}}`, "head"},
		"option as branch":    {"pull_request", pull("1", "--upload-pack=x", sha1), ""}, // legal below refs/heads
		"newline in branch":   {"pull_request", pull("1", `a\nb`, sha1), "head"},
		"path as branch":      {"pull_request", pull("1", "../x", sha1), "head"},
		"option as head":      {"pull_request", pull("1", "x", "--output=x"), "head"},
		"comment a number":    {"issue_comment", `{` + repo + `,"action":"created","issue":{"number":1},"comment":{"body":7}}`, "comment.body"},
		"no comment":          {"issue_comment", `{` + repo + `,"action":"created","issue":{"number":1}}`, "comment is missing"},
		"no issue":            {"issue_comment", `{` + repo + `,"action":"created","comment":{}}`, "issue.number"},
		"no action of it":     {"issue_comment", `{` + repo + `,"issue":{"number":1},"comment":{}}`, "action is missing"},
	} {
		ev, err := s.Normalize(t.Context(), source.Delivery{Event: tc.event, Body: []byte(tc.body)})
		if tc.says == "" {
			if err != nil || ev.SourceBranch == "" {
				t.Errorf("%s: %+v, %v", name, ev, err)
			}
		} else if !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want ErrInvalid that names %q", name, err, tc.says)
		}
	}
}

func TestReportStatus(t *testing.T) {
	api := forgetest.API(t, forgetest.Replay(t, "testdata/status.txt"))
	report := func(sha string, state source.StatusState, description, url string) error {
		return Dialect{}.ReportStatus(t.Context(), api, forgetest.Repository, source.CommitStatus{
			SHA: sha, Context: "kici/ci", State: state, Description: description, URL: url,
		})
	}
	const sha = "aa2cacce34592f4b7b87ebd73d30d5e9969b53ba"
	if err := report(sha, source.StatusRunning, "running", "https://ci.example.com/runs/1"); err != nil {
		t.Error(err)
	}
	if err := report(sha, source.StatusError, "cancelled", ""); err != nil {
		t.Error(err)
	}
	if err := report("1234567890123456789012345678901234567890", source.StatusSuccess, "", ""); !errors.Is(err, source.ErrNotFound) || errors.Is(err, source.ErrUnreachable) {
		t.Errorf("a commit that is gone: %v, want ErrNotFound", err)
	}
	for _, want := range []error{source.ErrDenied, source.ErrDenied, source.ErrUnreachable} {
		if err := report(sha, source.StatusSuccess, strings.Repeat("x", 1000), ""); !errors.Is(err, want) || strings.Contains(err.Error(), forgetest.Token) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if err := report(sha, "odd", "", ""); err == nil {
		t.Error("an unknown state was reported")
	}
}

func TestInstallHook(t *testing.T) {
	const address = "https://ci.example.com/webhook/default/generic/app"
	for _, file := range []string{"hook_new", "hook_again"} {
		api := forgetest.API(t, forgetest.Replay(t, "testdata/"+file+".txt"))
		if err := (Dialect{}).InstallHook(t.Context(), api, forgetest.Repository, address, "new"); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if err := (Dialect{}).InstallHook(t.Context(), api, forgetest.Repository, address, ""); !errors.Is(err, source.ErrMisconfigured) {
			t.Errorf("without a secret: %v", err)
		}
	}
}

func TestDefaultBranch(t *testing.T) {
	api := forgetest.API(t, forgetest.Replay(t, "testdata/repository.txt"))
	if b, err := (Dialect{}).DefaultBranch(t.Context(), api, forgetest.Repository); err != nil || b != "trunk" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := (Dialect{}).DefaultBranch(t.Context(), api, forgetest.Repository); !errors.Is(err, source.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

func TestAddresses(t *testing.T) {
	d := Dialect{}
	if got := d.APIBase("https://git.example.com/sub"); got != "https://git.example.com/sub/api/v1" {
		t.Error(got)
	}
	if got := d.CloneURL("https://git.example.com:3000", "acme/web", false); got != "https://git.example.com:3000/acme/web.git" {
		t.Error(got)
	}
	if got := d.CloneURL("https://git.example.com:3000", "acme/web", true); got != "git@git.example.com:acme/web.git" {
		t.Error(got)
	}
}

func FuzzWebhook(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	var seeds []source.Request
	for _, file := range files {
		seeds = append(seeds, forgetest.Request(f, file))
	}
	forgetest.Fuzz(f, Dialect{}, seeds...)
}
