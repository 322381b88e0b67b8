package ingress

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow"
)

func TestPushStartsTheMatchingWorkflows(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, sha := newRepo(t, map[string]string{
			".kici/workflows/ci.yaml":    yaml("ci", "push"),
			".kici/workflows/other.yaml": yaml("other", "{push: {branches: [release/*]}}"),
		})
		secret := w.source("demo", r.dir)
		got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		if got.code != http.StatusAccepted || !got.Accepted || got.DeliveryID == "" {
			t.Fatalf("%+v", got)
		}
		d := w.delivery(got.DeliveryID)
		if d.Status != statusProcessed || d.Matched != 1 || d.Sha != sha || d.Ref != "refs/heads/main" || d.Repo != "demo" {
			t.Errorf("%+v", d)
		}
		runs := w.runs()
		if len(runs) != 1 || runs[0].Workflow != "ci" || runs[0].Sha != sha || runs[0].Title != "first" || runs[0].Actor != "ann" ||
			runs[0].TriggerEvent != "push" || runs[0].ID != d.RunID.String || runs[0].DeliveryID != d.ID {
			t.Errorf("%+v", runs)
		}
		extra, err := st.Read().ReadDeliveryExtra(t.Context(), d.ID)
		if err != nil || !strings.Contains(extra.Decisions, `"workflow":"other","matched":false`) || !strings.Contains(extra.Decisions, `release/*`) {
			t.Errorf("decisions %s %v", extra.Decisions, err)
		}
		if strings.Contains(strings.ToLower(extra.Headers), secret) {
			t.Error("the secret is stored with the delivery")
		}
	})
}

func TestOutcomes(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, first := newRepo(t, map[string]string{
			".kici/workflows/ci.yaml": yaml("ci", "{push: {branches: ['**']}}"), ".kici/workflows/rel.yaml": yaml("release", "{push: {tags: ['v*']}}"),
			".kici/workflows/pr.yaml": yaml("review", "pull_request"),
		})
		secret := w.source("demo", r.dir)
		none := r.commit("no workflows", map[string]string{".kici/workflows/ci.yaml": "", ".kici/workflows/rel.yaml": "", ".kici/workflows/pr.yaml": ""})
		zero := strings.Repeat("0", 40)
		pull := func(from string) []byte {
			return []byte(`{"action":"opened","number":3,"pull_request":{"title":"Better","head":{"ref":"f","sha":"` + first + `","repo":{"full_name":"` + from +
				`"}},"base":{"ref":"main","sha":"` + none + `","repo":{"full_name":"a/a"}}}}`)
		}
		push := func(p source.Payload) []byte {
			text, _ := json.Marshal(p)
			return text
		}
		for _, tc := range []struct {
			name, event string
			body        []byte
			status      string
			matched     int64
			says        string
		}{
			{"branch", "push", push(pushOf("refs/heads/x", zero, first)), statusProcessed, 1, ""},
			{"hostile branch", "push", push(pushOf("refs/heads/$(touch${IFS}pwned)", zero, first)), statusProcessed, 1, ""},
			{"tag", "push", push(pushOf("refs/tags/v1.0", zero, first)), statusProcessed, 1, ""},
			{"unmatched tag", "push", push(pushOf("refs/tags/x", zero, first)), statusProcessed, 0, ""},
			{"missing", "push", push(pushOf("refs/heads/x", zero, none)), statusMissing, 0, "no workflows"},
			{"deleted branch", "push", push(pushOf("refs/heads/x", first, zero)), statusSkipped, 0, "deleted"},
			{"notes", "push", push(pushOf("refs/notes/x", zero, first)), statusSkipped, 0, "neither a branch nor a tag"},
			{"no such commit", "push", push(pushOf("refs/heads/x", zero, strings.Repeat("1", 40))), statusFailed, 0, "not in the repository"},
			{"traversal", "push", push(pushOf("refs/heads/../../x", zero, first)), statusFailed, 0, "usable git name"},
			{"newline", "push", push(pushOf("refs/heads/a\nb", zero, first)), statusFailed, 0, "usable git name"},
			{"option", "push", push(pushOf("--upload-pack=touch pwned", zero, first)), statusFailed, 0, "usable git name"},
			{"pull request", "pull_request", pull("a/a"), statusProcessed, 1, ""},
			{"fork", "pull_request", pull("m/a"), statusSkipped, 0, "fork"},
			{"unknown event", "star", []byte("{}"), statusSkipped, 0, "star"},
		} {
			got := w.signed("demo", secret, tc.event, "", tc.body)
			if got.code != http.StatusAccepted {
				t.Errorf("%s: %+v", tc.name, got)
				continue
			}
			d := w.delivery(got.DeliveryID)
			if d.Status != tc.status || d.Matched != tc.matched || !strings.Contains(d.Error, tc.says) || (tc.matched > 0) != d.RunID.Valid || d.Attempts != 1 {
				t.Errorf("%s: %+v", tc.name, d)
			}
		}
		runs := map[string]db.ReadRunsRow{}
		for _, run := range w.runs() {
			runs[run.Workflow+" "+run.Branch] = run
		}
		if pr := runs["review f"]; pr.TriggerEvent != "pr:opened" || pr.Title != "Better" || pr.Sha != first {
			t.Errorf("%+v", pr)
		}
		if tag := runs["release v1.0"]; tag.TriggerEvent != "tag" || tag.Ref != "refs/tags/v1.0" {
			t.Errorf("%+v", tag)
		}
		if _, ok := runs["ci $(touch${IFS}pwned)"]; !ok {
			t.Errorf("runs %v", runs)
		}
		if _, err := os.Stat("pwned"); err == nil {
			t.Error("a branch name was run")
		}
	})
}

func TestDriftIsOneFailedRunThatNamesTheCure(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		source := yaml("ci", "push")
		file, problems := workflow.Compile([]workflow.Source{{Path: ".kici/workflows/ci.yaml", Data: []byte(source)}})
		if workflow.HasErrors(problems) {
			t.Fatal(problems)
		}
		text, err := workflow.Encode(file)
		if err != nil {
			t.Fatal(err)
		}
		r, good := newRepo(t, map[string]string{".kici/workflows/ci.yaml": source, ".kici/kici.lock.json": string(text)})
		drifted := r.commit("drift", map[string]string{".kici/workflows/ci.yaml": source + "# changed\n"})
		secret := w.source("demo", r.dir)
		if d := w.delivery(w.push("demo", secret, pushOf("refs/heads/x", "", good), "d1").DeliveryID); d.Status != statusProcessed || d.Matched != 1 {
			t.Errorf("%+v", d)
		}
		d := w.delivery(w.push("demo", secret, pushOf("refs/heads/x", "", drifted), "d2").DeliveryID)
		run := w.runs()[0]
		if d.Status != statusCorrupt || run.ID != d.RunID.String || run.Status != "failed" || run.InitFailure != "lock_resolution" ||
			!strings.Contains(run.FailureReason, "kici compile") || len(w.runs()) != 2 {
			t.Errorf("%+v %+v", d, run)
		}
	})
}

func TestSymlinkedWorkflowsAreRefused(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t)).run()
	r, _ := newRepo(t, map[string]string{"other/workflows/ci.yaml": yaml("ci", "push")})
	if err := os.Symlink("other", filepath.Join(r.dir, ".kici")); err != nil {
		t.Fatal(err)
	}
	sha := r.commit("link", nil)
	secret := w.source("demo", r.dir)
	d := w.delivery(w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1").DeliveryID)
	if d.Status != statusCorrupt || !strings.Contains(d.Error, "symbolic link") {
		t.Errorf("%+v", d)
	}
}

// A generic delivery starts the registered workflows that wait for it, at their registered commits (ING-25).
func TestGenericDeliveryStartsRegisteredWorkflows(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		deploy := yaml("deploy", "{generic_webhook: {source: hooks, events: [deploy], match: {$.env: prod}}}")
		a, shaA := newRepo(t, map[string]string{".kici/workflows/d.yaml": deploy})
		b, shaB := newRepo(t, map[string]string{".kici/workflows/d.yaml": strings.Replace(deploy, "name: deploy", "name: deploy-b", 1)})
		c, shaC := newRepo(t, map[string]string{".kici/workflows/d.yaml": strings.Replace(deploy, "source: hooks", "source: others", 1)})
		for name, x := range map[string]struct {
			r   *repo
			sha string
		}{"a": {a, shaA}, "b": {b, shaB}, "c": {c, shaC}} {
			secret := w.source(name, x.r.dir)
			w.delivery(w.push(name, secret, pushOf("refs/heads/main", "", x.sha), "d1").DeliveryID)
		}
		// A branch that is not the default one registers nothing.
		a.git("checkout", "-q", "-b", "x")
		side := a.commit("side", map[string]string{".kici/workflows/d.yaml": strings.Replace(deploy, "name: deploy", "name: side", 1)})
		secret, err := w.in.RevealSecret(t.Context(), "default", "a")
		if err != nil {
			t.Fatal(err)
		}
		w.delivery(w.push("a", secret, pushOf("refs/heads/x", "", side), "d2").DeliveryID)
		add := func(name, runs string) string {
			added, err := w.in.AddGeneric(t.Context(), GenericSource{OrgID: "default", Name: name, RunsSource: runs})
			if err != nil || added.Secret == "" {
				t.Fatal(added, err)
			}
			return added.Secret
		}
		hooks, only := add("hooks", ""), add("only-b", "b")
		body := []byte(`{"env":"prod"}`)
		d := w.delivery(w.signed("hooks", hooks, "deploy", "g1", body).DeliveryID)
		if d.Status != statusProcessed || d.Matched != 2 || len(w.runs()) != 2 {
			t.Errorf("%+v and runs %s", d, w.workflows())
		}
		for _, run := range w.runs() {
			want := map[string]string{"deploy": shaA, "deploy-b": shaB}[run.Workflow]
			if run.Sha != want || run.Branch != "main" || run.TriggerEvent != "generic_webhook" || run.Title != "first" {
				t.Errorf("%+v", run)
			}
		}
		for name, post := range map[string]reply{
			"another event": w.signed("hooks", hooks, "test", "g2", body), "no match": w.signed("hooks", hooks, "deploy", "g3", []byte(`{"env":"dev"}`)),
			"limited to b, which waits for another source": w.signed("only-b", only, "deploy", "g4", body),
		} {
			if other := w.delivery(post.DeliveryID); other.Status != statusProcessed || other.Matched != 0 {
				t.Errorf("%s: %+v", name, other)
			}
		}
		// One repository that is gone for good must not stop the other, and must be seen (ING-26).
		if err := w.in.Enable(t.Context(), "default", "a", false); err != nil {
			t.Fatal(err)
		}
		d = w.delivery(w.signed("hooks", hooks, "deploy", "g5", body).DeliveryID)
		if d.Status != statusProcessed || d.Matched != 2 || len(w.runs()) != 4 {
			t.Errorf("%+v and runs %s", d, w.workflows())
		}
		failed := 0
		for _, run := range w.runs() {
			if run.Status == "failed" && strings.Contains(run.FailureReason, "disabled") {
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d failed runs, want 1", failed)
		}
		// Deleting a source removes what it registered.
		if err := w.in.Delete(t.Context(), "default", "b"); err != nil {
			t.Fatal(err)
		}
		if d := w.delivery(w.signed("hooks", hooks, "deploy", "g6", body).DeliveryID); d.Matched != 1 {
			t.Errorf("%+v", d)
		}
	})
}

func TestLargeBodiesAreCompressedAndComeBack(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", r.dir)
		body := []byte(`{"ref":"refs/heads/main","after":"` + sha + `","padding":"` + strings.Repeat("many words ", 20_000) + `"}`)
		got := w.signed("demo", secret, "push", "d1", body)
		row, err := st.Read().ReadDeliveryBody(t.Context(), got.ID)
		if err != nil || row.BodyEncoding != "zstd" || len(row.Body) > len(body)/10 {
			t.Fatalf("%s %d %v", row.BodyEncoding, len(row.Body), err)
		}
		if back, err := w.in.codec.unpack(row.Body, row.BodyEncoding); err != nil || !bytes.Equal(back, body) {
			t.Errorf("%d bytes %v", len(back), err)
		}
		w.run() // from the store, not from memory
		if d := w.delivery(got.DeliveryID); d.Status != statusProcessed || d.Matched != 1 || d.BodySize != int64(len(body)) {
			t.Errorf("%+v", d)
		}
	})
}

func TestPayloadThatIsNotUnicode(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", r.dir)
		d := w.delivery(w.signed("demo", secret, "push", "d\xff\x00", []byte(`{"ref":"refs/heads/main","after":"`+sha+`","x":"`+"\xff"+`\u0000","pusher":{"name":"`+"\xfe"+`"}}`)).ID)
		if d.Status != statusProcessed || d.Matched != 1 {
			t.Errorf("%+v", d)
		}
	})
}

// JSON allows numbers that no value of an expression can hold; such a delivery is refused, once and for good.
func TestPayloadWithNumbersOutOfRange(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", r.dir)
		d := w.delivery(w.signed("demo", secret, "push", "huge", []byte(`{"ref":"refs/heads/main","after":"`+sha+`","deep":[{"n":1e999}]}`)).ID)
		if d.Status != statusFailed || d.Matched != 0 || d.Attempts != 1 || !strings.Contains(d.Error, "1e999") {
			t.Errorf("status %s after %d attempts, matched %d: %s", d.Status, d.Attempts, d.Matched, d.Error)
		}
	})
}

// One repository that cannot be reached keeps the workflows of another waiting for two attempts and no longer, and is seen (ING-26).
func TestRegisteredWorkflowWhoseRepositoryIsAway(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		var gone atomic.Bool
		w := newWorld(t, st, func(d *Deps) { takeAway(d, "b", &gone) }).run()
		for _, name := range []string{"a", "b"} {
			r, _ := newRepo(t, map[string]string{".kici/workflows/d.yaml": yaml("deploy-"+name, "{generic_webhook: {source: hooks, events: [deploy]}}")})
			w.source(name, r.dir)
			if _, err := w.in.Refresh(t.Context(), "default", name, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		hooks, err := w.in.AddGeneric(t.Context(), GenericSource{OrgID: "default", Name: "hooks"})
		if err != nil {
			t.Fatal(err)
		}
		gone.Store(true)
		d := w.delivery(w.signed("hooks", hooks.Secret, "deploy", "g1", []byte(`{}`)).DeliveryID)
		if d.Status != statusProcessed || d.Matched != 2 || d.Attempts != patientAttempts+1 || len(w.runs()) != 2 {
			t.Fatalf("%+v %s", d, w.workflows())
		}
		for _, r := range w.runs() {
			if r.Workflow != "deploy-"+r.Repo {
				t.Errorf("it is called %s", r.Workflow)
			}
			if failed := r.Status == "failed"; failed != (r.Repo == "b") || failed && !strings.Contains(r.FailureReason, "nobody answers") {
				t.Errorf("%+v", r)
			} else if failed {
				again, err := w.deps.Runs.(*realRuns).runs.Rerun(t.Context(), run.RerunRequest{OrgID: "default", RunID: r.ID, By: "ann"})
				if err != nil || !again.Created {
					t.Errorf("it cannot be run again: %+v %v", again, err)
				}
			}
		}
	})
}
