package gitlab

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

// testSecret came with the webhooks of testdata, which are those of GitLab's documentation.
const testSecret = "a secret of tests"

const (
	zero = "0000000000000000000000000000000000000000"
	sha0 = "95790bf891e76fee5e1747ab589903a6a1f80f22"
	sha1 = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"
)

func recorded(t testing.TB, name string) source.Request {
	t.Helper()
	return forgetest.Request(t, filepath.Join("testdata", name+".http"))
}

func normalize(t *testing.T, name string) (ci.Event, error) {
	t.Helper()
	r := recorded(t, name)
	if err := (Dialect{}).Verify(testSecret, r); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	got, err := (Dialect{}).Read(r)
	if err != nil || got.ID == "" || got.Keyed || got.Headers["x-gitlab-token"] != "" || got.Headers["x-gitlab-event"] == "" {
		t.Fatalf("%s: %+v, %v", name, got, err)
	}
	return forgetest.Open(t, Dialect{}, "").Normalize(t.Context(), got.Delivery)
}

// TestWebhooks: each verifies, is named, and becomes the event that the source makes of it.
func TestWebhooks(t *testing.T) {
	request := func(action string) ci.Event {
		return ci.Event{
			Type: "pr", Action: action, Number: 1, Title: "MS-Viewport", Ref: "refs/merge-requests/1/head", SHA: sha1,
			SourceBranch: "ms-viewport", TargetBranch: "main", Branch: "ms-viewport",
		}
	}
	for name, want := range map[string]ci.Event{
		"push_branch":                  {Type: "push", Ref: "refs/heads/main", Branch: "main", SHA: sha1, Before: sha0},
		"push_before_17_4":             {Type: "push", Ref: "refs/heads/main", Branch: "main", SHA: sha1, Before: sha0},
		"push_new_branch":              {Type: "push", Ref: "refs/heads/feature/x", Branch: "feature/x", SHA: sha1},
		"push_annotated_tag":           {Type: "tag", Ref: "refs/tags/v1.0.0", Tag: "v1.0.0", SHA: sha1}, // the commit, not the tag's object
		"merge_request_open":           request("opened"),
		"merge_request_update_commits": request("synchronize"),
		"merge_request_update_title":   request("edited"),
		"merge_request_merge":          request("closed"),
		"merge_request_close":          request("closed"),
		"merge_request_reopen":         request("reopened"),
		"note_merge_request":           {Type: "comment", Action: "created", Number: 1, Title: "MS-Viewport", Comment: "/retest", CommentOn: "pr"},
		"note_issue_edited":            {Type: "comment", Action: "edited", Number: 17, Title: "A bug", Comment: "/retest", CommentOn: "issue"},
	} {
		ev, err := normalize(t, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want.Repo, want.DefaultBranch, want.Source, want.Payload, want.Actor = forgetest.Repository, "main", "forge", ev.Payload, "jsmith"
		switch want.Type {
		case "comment": // the source adds the head of the default branch
			want.Branch, want.Ref, want.SHA = ev.Branch, ev.Ref, ev.SHA
		case "pr": // and the head of the target, which GitLab does not tell
			want.BaseSHA, want.Before = ev.BaseSHA, ev.BaseSHA
			if ev.BaseSHA == "" {
				t.Errorf("%s: no base", name)
			}
		}
		if !reflect.DeepEqual(ev, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, ev, want)
		}
	}
}

// TestIgnored: what starts nothing says why, and is kept with what is known of it.
func TestIgnored(t *testing.T) {
	for name, why := range map[string]string{
		"push_deleted_branch":    "refs/heads/old was deleted",
		"push_deleted_tag":       "refs/tags/v1.0.0 was deleted",
		"merge_request_fork":     "comes from a fork",
		"merge_request_approved": "approved",
		"note_commit":            `a comment on "Commit"`,
		"note_confidential":      "confidential",
	} {
		ev, err := normalize(t, name)
		if !errors.Is(err, source.ErrIgnored) || !strings.Contains(err.Error(), why) || ev.Repo == "" {
			t.Errorf("%s: %+v, %v; want ErrIgnored with %q", name, ev, err, why)
		}
	}
	for event, body := range map[string]string{
		"pipeline": `{"project":{"path_with_namespace":"acme/web"}}`,
		"note":     `{"project":{"path_with_namespace":"acme/web"},"object_attributes":{"noteable_type":"Issue","system":true},"issue":{"iid":1}}`,
	} {
		if _, err := (Dialect{}).Parse(source.Delivery{Event: event, Body: []byte(body)}); !errors.Is(err, source.ErrIgnored) {
			t.Errorf("%s: %v; want ErrIgnored", event, err)
		}
	}
}

// TestDeliveryID: the same when GitLab repeats a delivery, another for another.
func TestDeliveryID(t *testing.T) {
	id := func(name string, change func(*source.Request)) string {
		r := recorded(t, name)
		change(&r)
		got, err := (Dialect{}).Read(r)
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}
	same := func(*source.Request) {}
	fresh := func(r *source.Request) { r.Header.Set("X-Gitlab-Event-UUID", "another") }
	if a, b := id("push_branch", same), id("push_branch", fresh); a != b || !strings.HasPrefix(a, "f5e57cc8-") {
		t.Errorf("Idempotency-Key is not what counts: %q, %q", a, b)
	}
	if a, b := id("push_before_17_4", same), id("push_before_17_4", same); a != b || !strings.HasPrefix(a, "13792a34-") {
		t.Errorf("without Idempotency-Key a repetition differs: %q, %q", a, b)
	}
	if id("push_before_17_4", same) == id("push_before_17_4", fresh) {
		t.Error("two events have one id")
	}
	if id("push_before_17_4", same) == id("push_before_17_4", func(r *source.Request) { r.Body = []byte(`{"x":1}`) }) {
		t.Error("events that share an X-Gitlab-Event-UUID, as those made by a webhook's own API calls do, have one id")
	}
}

func TestVerify(t *testing.T) {
	for given, ok := range map[string]bool{testSecret: true, "": false, "x": false, testSecret + "x": false, testSecret[:5]: false} {
		r := source.Request{Header: http.Header{}, Body: []byte(`{}`)}
		if given != "" {
			r.Header.Set("X-Gitlab-Token", given)
		}
		err := (Dialect{}).Verify(testSecret, r)
		if ok != (err == nil) || !ok && !errors.Is(err, source.ErrUnauthorized) {
			t.Errorf("%q: %v", given, err)
		}
		if err := (Dialect{}).Verify("", r); !errors.Is(err, source.ErrUnauthorized) {
			t.Errorf("%q: passes without a secret", given)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	full := map[string]string{"X-Gitlab-Event": "Push Hook", "Idempotency-Key": "1"}
	for name, tc := range map[string]struct {
		header map[string]string
		body   string
		says   string
	}{
		"no event": {map[string]string{"Idempotency-Key": "1"}, `{}`, "x-gitlab-event"},
		"no id":    {map[string]string{"X-Gitlab-Event": "Push Hook", "X-Gitlab-Webhook-UUID": "1"}, `{}`, "idempotency-key"},
		"no body":  {full, "", "JSON object"},
		"a list":   {full, "[]", "JSON object"},
		"cut":      {full, `{"a":`, "JSON object"},
		"deep":     {full, strings.Repeat(`{"a":`, 100_000), "JSON object"},
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

// TestHostile: what GitLab does not send is refused, and the refusal names the field.
func TestHostile(t *testing.T) {
	const repo = `"project":{"path_with_namespace":"acme/web","default_branch":"main"}`
	push := func(ref, before, after string) string {
		return `{` + repo + `,"ref":"` + ref + `","before":"` + before + `","after":"` + after + `"}`
	}
	request := func(iid, branch, sha string) string {
		return `{` + repo + `,"object_attributes":{"action":"open","iid":` + iid + `,"source_branch":"` + branch + `","target_branch":"main",` +
			`"source_project_id":15,"target_project_id":15,"last_commit":{"id":"` + sha + `"}}}`
	}
	s := forgetest.Open(t, Dialect{}, "")
	for name, tc := range map[string]struct{ event, body, says string }{
		"not JSON":         {"push", "\xff{", "push"},
		"deep":             {"push", strings.Repeat(`{"ref":`, 100_000), "push"},
		"no project":       {"push", `{"ref":"refs/heads/x"}`, "project.path_with_namespace"},
		"project a number": {"push", `{"project":7}`, "project"},
		"no ref":           {"push", `{` + repo + `}`, "ref is missing"},
		"no after":         {"tag_push", push("refs/tags/x", zero, ""), "after is missing"},
		"ref a number":     {"push", `{` + repo + `,"ref":7}`, "ref"},
		"option as ref":    {"push", push("--upload-pack=x", zero, sha1), "ref"},
		"newline in ref":   {"push", push(`refs/heads/a\nb`, zero, sha1), "ref"},
		"path as ref":      {"tag_push", push("refs/tags/../../x", zero, sha1), "ref"},
		"option as after":  {"push", push("refs/heads/x", zero, "--output=x"), "after"},
		"option as before": {"push", push("refs/heads/x", "--output=x", sha1), "before"},
		"no attributes":    {"merge_request", `{` + repo + `}`, "object_attributes is missing"},
		"no action":        {"merge_request", `{` + repo + `,"object_attributes":{"iid":1}}`, "action is missing"},
		"no iid":           {"merge_request", request("0", "x", sha1), "iid is missing"},
		"a huge iid":       {"merge_request", request("1e99", "x", sha1), "iid"},
		"no commit":        {"merge_request", request("1", "x", ""), "last_commit.id"},
		"newline":          {"merge_request", request("1", `a\nb`, sha1), "head"},
		"path":             {"merge_request", request("1", "../x", sha1), "head"},
		"option as commit": {"merge_request", request("1", "x", "--output=x"), "head"},
		"no note":          {"note", `{` + repo + `}`, "object_attributes is missing"},
		"note of nothing":  {"note", `{` + repo + `,"object_attributes":{"noteable_type":"MergeRequest"}}`, "merge_request.iid"},
		"note a list":      {"note", `{` + repo + `,"object_attributes":{"note":[]}}`, "note"},
	} {
		if ev, err := s.Normalize(t.Context(), source.Delivery{Event: tc.event, Body: []byte(tc.body)}); !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %+v, %v; want ErrInvalid that names %q", name, ev, err, tc.says)
		}
	}
}

// TestForkThatIsGone: without a source project nobody knows who made the request.
func TestForkThatIsGone(t *testing.T) {
	d, err := (Dialect{}).Read(recorded(t, "merge_request_open"))
	if err != nil {
		t.Fatal(err)
	}
	d.Body = []byte(strings.Replace(string(d.Body), `"source_project_id": 15`, `"source_project_id": null`, 1))
	if ev, err := (Dialect{}).Parse(d.Delivery); err != nil || !ev.Fork {
		t.Errorf("%+v, %v", ev, err)
	}
}

func TestReportStatus(t *testing.T) {
	api := forgetest.API(t, forgetest.Replay(t, "testdata/status.txt"))
	report := func(state source.StatusState, description, url string) error {
		return Dialect{}.ReportStatus(t.Context(), api, forgetest.Repository, source.CommitStatus{
			SHA: "18f3e63d05582537db6d183d9d557be09e1f90c8", Context: "kici/ci", State: state, Description: description, URL: url,
		})
	}
	for range 2 { // the second is where it is already
		if err := report(source.StatusRunning, "running", "https://ci.example.com/runs/1"); err != nil {
			t.Error(err)
		}
	}
	if err := report(source.StatusError, "cancelled", ""); err != nil {
		t.Error(err)
	}
	if err := report(source.StatusFailure, "step 2 failed", ""); err == nil || errors.Is(err, source.ErrUnreachable) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a refused request: %v", err)
	}
	for _, want := range []error{source.ErrDenied, source.ErrDenied, source.ErrNotFound, source.ErrUnreachable} {
		err := report(source.StatusSuccess, strings.Repeat("é", 1000), "")
		if !errors.Is(err, want) || strings.Contains(err.Error(), forgetest.Token) {
			t.Errorf("%v, want %v", err, want)
		}
		if errors.Is(want, source.ErrUnreachable) && source.RetryTime(err).IsZero() {
			t.Errorf("%v does not say when to try again", err)
		}
	}
	if err := report("odd", "", ""); err == nil {
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
	api := forgetest.API(t, forgetest.Replay(t, "testdata/project.txt"))
	if b, err := (Dialect{}).DefaultBranch(t.Context(), api, "acme/group/web"); err != nil || b != "trunk" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := (Dialect{}).DefaultBranch(t.Context(), api, "acme/group/web"); !errors.Is(err, source.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

func TestAddresses(t *testing.T) {
	d := Dialect{}
	if got := d.APIBase(d.Public()); got != "https://gitlab.com/api/v4" {
		t.Error(got)
	}
	if got := d.CloneURL(d.Public(), "acme/group/web", false); got != "https://gitlab.com/acme/group/web.git" {
		t.Error(got)
	}
	if got := d.CloneURL(d.Public(), "acme/group/web", true); got != "git@gitlab.com:acme/group/web.git" {
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
