package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/generic"
	"github.com/kici-go/kici/internal/source/local"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one server's intake over a real store, real git and the real run room.
type world struct {
	t       testing.TB
	st      *store.Store
	in      *Service
	deps    Deps
	secrets *memorySecrets
	told    told
	stop    context.CancelFunc
	done    chan struct{}
}

// memorySecrets stands for the sealed store. It is not transactional: no test rolls a secret back.
type memorySecrets struct {
	mu     sync.Mutex
	values map[SecretID]Secret
	fail   error
}

func (m *memorySecrets) Put(_ context.Context, tx *store.Tx, id SecretID, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[id] = Secret{value, tx.Now()}
	return m.fail
}

func (m *memorySecrets) Drop(_ context.Context, _ *store.Tx, id SecretID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, id)
	return m.fail
}

func (m *memorySecrets) DropScope(_ context.Context, _ *store.Tx, org, scope string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.values, func(id SecretID, _ Secret) bool { return id.OrgID == org && id.Scope == scope })
	return m.fail
}

func (m *memorySecrets) Open(_ context.Context, org, scope string) (map[string]Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]Secret{}
	for id, s := range m.values {
		if id.OrgID == org && id.Scope == scope {
			out[id.Key] = s
		}
	}
	return out, m.fail
}

// realRuns is the run room as app wires it.
type realRuns struct {
	runs *run.Service
	fail func(name string) error // for a fault while a run is inserted
}

type inserter func(tx *store.Tx) (string, bool, error)

func (f inserter) Insert(_ context.Context, tx *store.Tx) (string, bool, error) { return f(tx) }

func (r *realRuns) Plan(n NewRun) PlannedRun {
	p := r.runs.Plan(run.New{
		OrgID: n.OrgID, RoutingKey: n.RoutingKey, Repo: n.Repo, Workflow: n.Workflow, Event: n.Event, TriggerEvent: n.TriggerEvent,
		Decision: n.Decision, DeliveryRow: n.DeliveryRow, DedupKey: n.DedupKey, Inputs: n.Inputs, Actor: n.Actor, TrustTier: n.TrustTier,
		Unstarted: n.Unstarted,
	})
	p.Warnings = append(p.Warnings, n.Warnings...)
	return inserter(func(tx *store.Tx) (string, bool, error) {
		if r.fail != nil {
			if err := r.fail(n.Workflow.Name); err != nil {
				return "", false, err
			}
		}
		return r.runs.Insert(tx, p)
	})
}

func (r *realRuns) PlanFailed(f FailedRun) PlannedRun {
	return inserter(func(tx *store.Tx) (string, bool, error) {
		return r.runs.InsertFailed(tx, run.FailedRun{
			OrgID: f.OrgID, RoutingKey: f.RoutingKey, Repo: f.Repo, Event: f.Event, TriggerEvent: f.TriggerEvent, DeliveryRow: f.DeliveryRow,
			DedupKey: f.DedupKey, Actor: f.Actor, TrustTier: f.TrustTier, InitFailure: f.InitFailure, Reason: f.Reason,
		})
	})
}

// told keeps the events that the intake emits.
type told struct{ events []Event }

func (t *told) EmitTx(_ *store.Tx, e Event) error {
	t.events = append(t.events, e)
	return nil
}

// noEvents drops what registrations tell.
type noEvents struct{}

func (noEvents) EmitTx(*store.Tx, registration.Event) error { return nil }

// newWorld makes the intake without running it.
func newWorld(t testing.TB, st *store.Store, change ...func(*Deps)) *world {
	t.Helper()
	env := service.Env{Now: time.Now, NewID: ci.NewID}
	log := slog.New(slog.DiscardHandler)
	repos := git.NewRepos(git.ReposOptions{})
	w := &world{t: t, st: st, secrets: &memorySecrets{values: map[SecretID]Secret{}}}
	w.deps = Deps{
		Store: st, InstanceID: "one", Secrets: w.secrets, Env: env, Log: log, Metrics: obs.NewMetrics(),
		Runs:          &realRuns{runs: run.NewService(st, run.DefaultSettings(), env, log)},
		Registrations: registration.New(registration.Deps{Store: st, Events: noEvents{}, Env: env, Log: log}),
		Globals:       func(string) Globals { return Globals{} },
		Events:        &w.told,
		BaseURL:       func() string { return "http://kici.test" },
		Factories: map[string]Factory{
			local.Kind:   func(c source.Config) (source.Source, error) { return local.New(c, repos) },
			generic.Kind: func(c source.Config) (source.Source, error) { return generic.New(c) },
		},
	}
	for _, f := range change {
		f(&w.deps)
	}
	w.in = New(w.deps)
	t.Cleanup(func() {
		w.halt()
		w.in.Close()
		repos.Close()
	})
	if err := st.Write(context.Background(), func(tx *store.Tx) error { return tx.InsertOrg(context.Background(), "default", 1) }); err != nil {
		t.Fatal(err)
	}
	return w
}

// run starts the pipeline and waits until it takes new deliveries at once.
func (w *world) run() *world {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.done = stop, make(chan struct{})
	go func() {
		defer close(w.done)
		if err := w.in.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	return w
}

func (w *world) halt() {
	if w.stop != nil {
		w.stop()
		<-w.done
		w.stop = nil
	}
}

// source adds a local source of the repository and returns its secret.
func (w *world) source(name, path string) string {
	w.t.Helper()
	added, err := w.in.AddLocal(context.Background(), LocalSource{OrgID: "default", Name: name, Path: path, Repo: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return added.Secret
}

// reply is an answer to a webhook.
type reply struct {
	code   int
	header http.Header
	answer
}

func (w *world) post(name string, body []byte, header map[string]string) reply {
	w.t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/webhook/default/generic/"+name, bytes.NewReader(body))
	for k, v := range header {
		req.Header.Set(k, v)
	}
	return w.do(req)
}

func (w *world) do(req *http.Request) reply {
	rec := httptest.NewRecorder()
	w.in.Handler().ServeHTTP(rec, req)
	r := reply{code: rec.Code, header: rec.Header()}
	if err := json.Unmarshal(rec.Body.Bytes(), &r.answer); err != nil {
		w.t.Errorf("answer %q: %v", rec.Body, err)
	}
	return r
}

// push posts a signed push delivery.
func (w *world) push(name, secret string, p source.Payload, id string) reply {
	w.t.Helper()
	body, err := json.Marshal(p)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.signed(name, secret, "push", id, body)
}

func (w *world) signed(name, secret, event, id string, body []byte) reply {
	w.t.Helper()
	h := map[string]string{"X-Event-Type": event, "X-Signature-256": source.Sign(secret, body), "Content-Type": "application/json"}
	if id != "" {
		h["X-Delivery-Id"] = id
	}
	return w.post(name, body, h)
}

// delivery waits until the delivery has ended and returns its row.
func (w *world) delivery(id string) db.ReadDeliveryRow {
	w.t.Helper()
	var last db.ReadDeliveryRow
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		rows, err := w.st.Read().ReadDelivery(context.Background(), "default", id)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(rows) == 1 && rows[0].FinishedAt.Valid {
			return rows[0]
		}
		if len(rows) == 1 {
			last = rows[0]
		}
	}
	w.t.Fatalf("delivery %s has not ended: %+v", id, last)
	return last
}

func (w *world) runs() []db.ReadRunsRow {
	w.t.Helper()
	rows, err := w.st.Read().ReadRuns(context.Background(), db.ReadRunsParams{OrgID: "default", BeforeAt: 1 << 60, MaxRows: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

func (w *world) workflows() string {
	var names []string
	for _, r := range w.runs() {
		names = append(names, r.Workflow)
	}
	return strings.Join(names, " ")
}

// repo is a real git repository.
type repo struct {
	t   testing.TB
	dir string
}

func newRepo(t testing.TB, files map[string]string) (*repo, string) {
	t.Helper()
	r := &repo{t: t, dir: filepath.Join(t.TempDir(), "repo")}
	if out, err := exec.Command("git", "init", "-q", "-b", "main", r.dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v %s", err, out)
	}
	return r, r.commit("first", files)
}

func (r *repo) git(args ...string) string {
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

func (r *repo) commit(message string, files map[string]string) string {
	r.t.Helper()
	for name, text := range files {
		full := filepath.Join(r.dir, name)
		if text == "" {
			_ = os.Remove(full)
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o600)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", message)
	return r.git("rev-parse", "HEAD")
}

// yaml is a workflow of one job.
func yaml(name, on string) string {
	return fmt.Sprintf("name: %s\non: %s\njobs:\n  build:\n    runs-on: linux\n    steps:\n      - run: echo hello\n", name, on)
}

func pushOf(ref, before, after string) source.Payload {
	return source.Payload{Ref: ref, Before: before, After: after, Pusher: source.PayloadPusher{Name: "ann"}}
}

func each(t *testing.T, f func(t *testing.T, st *store.Store)) { t.Helper(); storetest.Each(t, f) }
