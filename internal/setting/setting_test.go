package setting

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rig struct {
	*Service
	now atomic.Int64
}

func newRig(t *testing.T, st *store.Store, environ map[string]string) *rig {
	t.Helper()
	r := &rig{}
	r.now.Store(time.Now().UnixMilli())
	var err error
	r.Service, err = New(Deps{
		Store: st, Env: service.Env{Now: func() time.Time { return time.UnixMilli(r.now.Load()) }, NewID: ci.NewID},
		Log: slog.New(slog.DiscardHandler), Getenv: func(n string) string { return environ[n] },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func set(pairs ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return m
}

func (r *rig) must(t *testing.T, scope string, pairs ...string) Changed {
	t.Helper()
	c, err := r.Apply(t.Context(), Change{Scope: scope, By: "ada", Set: set(pairs...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryKeyIsWhole(t *testing.T) {
	var c Cluster
	var o Org
	check(t, clusterKeys, &c)
	check(t, orgKeys, &o)
}

// check goes through a table: every key has its own name, a default that it accepts itself, and bounds that it keeps.
func check[T any](t *testing.T, keys []*keyOf[T], v *T) {
	t.Helper()
	seen := map[string]bool{}
	for _, k := range keys {
		if seen[k.Name] || k.About == "" || k.Type == "" {
			t.Errorf("%s: twice, or not described", k.Name)
		}
		seen[k.Name] = true
		k.first(v)
		text, err := json.Marshal(k.get(v))
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != "null" {
			if err := k.set(v, text); err != nil {
				t.Errorf("%s does not accept its default %s: %v", k.Name, text, err)
			}
		}
		if k.set(v, json.RawMessage(`{"a":[1]}`)) == nil {
			t.Errorf("%s accepts nonsense", k.Name)
		}
		if k.Type != TypeNumber {
			continue
		}
		for _, bad := range []string{"-1", "1.5", `"1"`, "9223372036854775807", "1e3"} {
			if k.set(v, json.RawMessage(bad)) == nil {
				t.Errorf("%s accepts %s", k.Name, bad)
			}
		}
		if k.Min > 0 && k.set(v, json.RawMessage("0")) == nil {
			t.Errorf("%s accepts 0 and has the minimum %d", k.Name, k.Min)
		}
	}
}

func TestPrecedence(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st, map[string]string{"KICI_QUEUE_MAX_DEPTH": "7", "KICI_QUEUE_TIMEOUT_MS": "0", "KICI_SANDBOX_ALLOWED_CAPABILITIES": `["CAP_KILL"]`})
		if c := r.Cluster(); c.QueueMaxDepth != 7 || c.UnroutableGrace != 2*time.Minute || c.RunRetention != 90*24*time.Hour {
			t.Fatalf("environment and defaults: %+v", c)
		}
		if o := r.Org("a"); o.QueueTimeout != 0 || !slices.Equal(o.SandboxCapabilities, []string{"CAP_KILL"}) {
			t.Fatalf("%+v", o)
		}
		r.must(t, ClusterScope, "queueMaxDepth", "12", "unroutableGraceMs", "0")
		r.must(t, OrgScope("a"), "queueTimeoutMs", "5000", "allowedRepos", `[{"pattern":"a/*"}]`)
		if c := r.Cluster(); c.QueueMaxDepth != 12 || c.UnroutableGrace != 0 {
			t.Fatalf("live: %+v", c)
		}
		if a, b := r.Org("a"), r.Org("b"); a.QueueTimeout != 5*time.Second || b.QueueTimeout != 0 || len(a.AllowedRepos) != 1 || b.AllowedRepos != nil {
			t.Fatalf("organisations: %+v %+v", a, b)
		}
		r.must(t, ClusterScope, "queueMaxDepth", "null", "unroutableGraceMs", "null")
		if c := r.Cluster(); c.QueueMaxDepth != 7 || c.UnroutableGrace != 2*time.Minute {
			t.Fatalf("cleared: %+v", c)
		}
		l, err := r.List(t.Context(), OrgScope("a"))
		if err != nil || l.Version != 1 || l.UpdatedBy != "ada" {
			t.Fatal(l, err)
		}
		for _, v := range l.Values {
			want := map[string]string{"queueTimeoutMs": FromLive, "allowedRepos": FromLive, "sandboxAllowedCapabilities": FromEnvironment}[v.Name]
			if want == "" {
				want = FromDefault
			}
			if v.Source != want {
				t.Errorf("%s comes from %s, not %s", v.Name, v.Source, want)
			}
		}
	})
}

func TestVersionRisesOnARealChangeOnly(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st, nil)
		steps := []struct {
			key, value string
			version    int64
		}{{"queueMaxDepth", "12", 1}, {"queueMaxDepth", " 12 ", 1}, {"unroutableGraceMs", "null", 1}, {"queueMaxDepth", "null", 2}, {"queueMaxDepth", "null", 2}}
		for _, s := range steps {
			if got := r.must(t, ClusterScope, s.key, s.value); got.Version != s.version {
				t.Errorf("%s=%s: version %d, want %d", s.key, s.value, got.Version, s.version)
			}
		}
		if r.Version() != 2 {
			t.Error(r.Version())
		}
	})
}

func TestRefusals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st, map[string]string{"KICI_GLOBAL_EVAL_ROUND_TIMEOUT_MS": "200000"})
		tests := map[string]struct {
			scope string
			set   map[string]json.RawMessage
			says  string
		}{
			"unknown key":           {ClusterScope, set("queueMaxDeepth", "1"), `did you mean "queueMaxDepth"?`},
			"key of an org":         {ClusterScope, set("queueTimeoutMs", "1"), "is not a setting"},
			"under its minimum":     {ClusterScope, set("scalerReapIntervalMs", "4999"), "scalerReapIntervalMs must be at least 5000"},
			"over its maximum":      {ClusterScope, set("contentCacheMax", "100001"), "must be at most 100000"},
			"text for a number":     {ClusterScope, set("queueMaxDepth", `"12"`), "must be a whole number"},
			"relative url":          {ClusterScope, set("dashboardVerifiedIssuer", `"/x"`), "absolute"},
			"wait under round":      {ClusterScope, set("globalEvalWaitTimeoutMs", "150000"), "globalEvalRoundTimeoutMs would be 200000"},
			"max under base":        {ClusterScope, set("scalerProvisionBackoffMaxMs", "1000"), "at least scalerProvisionBackoffBaseMs"},
			"capability":            {OrgScope("a"), set("sandboxAllowedCapabilities", `["CAP_FLY"]`), `"CAP_FLY"`},
			"entry without pattern": {OrgScope("a"), set("allowedRepos", `[{"routingKey":"x"}]`), "pattern"},
			"entry with more":       {OrgScope("a"), set("allowedRepos", `[{"pattern":"x","more":1}]`), "must be a list"},
			"dashboard":             {OrgScope("a"), set("dashboardWrites", `{"run.cancel":"perhaps"}`), "must be one of"},
		}
		for name, tc := range tests {
			_, err := r.Apply(t.Context(), Change{Scope: tc.scope, Set: tc.set})
			var invalid *Invalid
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// One mistake refuses the whole change.
		if _, err := r.Apply(t.Context(), Change{Scope: ClusterScope, Set: set("queueMaxDepth", "3", "nonsense", "1")}); err == nil || r.Cluster().QueueMaxDepth == 3 || r.Version() != 0 {
			t.Error("half a change was made")
		}
	})
}

func TestEnvironmentIsChecked(t *testing.T) {
	st := storetest.SQLite(t)
	for name, environ := range map[string]map[string]string{
		"KICI_QUEUE_MAX_DEPTH must be a whole number": {"KICI_QUEUE_MAX_DEPTH": "many"},
		"at least scalerProvisionBackoffBaseMs":       {"KICI_SCALER_PROVISION_BACKOFF_MAX_MS": "1000"},
	} {
		_, err := New(Deps{Store: st, Env: service.Env{Now: time.Now}, Log: slog.New(slog.DiscardHandler), Getenv: func(n string) string { return environ[n] }})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", environ, err)
		}
	}
}

func TestXC110UnreadableTable(t *testing.T) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		st := d.Open(t)
		r := newRig(t, st, nil)
		r.must(t, ClusterScope, "globalWorkflowsEnabled", "true", "queueMaxDepth", "12")
		r.must(t, OrgScope("a"), "sandboxAllowHostNetwork", "true")
		broken, cancel := context.WithCancel(t.Context())
		cancel()
		if r.Load(broken) == nil {
			t.Fatal("read without a store")
		}
		if c := r.Cluster(); !c.GlobalWorkflows || c.QueueMaxDepth != 12 {
			t.Errorf("a moment later: %+v", c)
		}
		r.now.Add((switchLife + time.Second).Milliseconds())
		if c := r.Cluster(); c.GlobalWorkflows || c.QueueMaxDepth != 12 || r.Org("a").SandboxHostNetwork || r.Org("b").SelfApproval {
			t.Errorf("much later: %+v", c)
		}
		if err := r.Load(t.Context()); err != nil || !r.Cluster().GlobalWorkflows || !r.Org("a").SandboxHostNetwork || !r.Org("b").SelfApproval {
			t.Error("the table can be read again", err)
		}

		// A row that cannot be understood: defaults, and what guards something is off at once.
		if err := st.Write(t.Context(), func(tx *store.Tx) error {
			row, err := tx.SettingsForUpdate(t.Context(), ClusterScope)
			if err != nil {
				return err
			}
			return tx.UpdateSettings(t.Context(), updateOf(row, `{"queueMaxDepth":`))
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := r.Cluster(); c.GlobalWorkflows || c.QueueMaxDepth != 50000 || !r.Org("a").SandboxHostNetwork {
			t.Errorf("damaged row: %+v", c)
		}
		// A start with it works, and setting a value mends it.
		again := newRig(t, st, nil)
		again.must(t, ClusterScope, "globalWorkflowsEnabled", "true")
		if !again.Cluster().GlobalWorkflows {
			t.Error("not mended")
		}
	})
}

func TestSwitchesDenyBeforeTheFirstRead(t *testing.T) {
	s, err := New(Deps{Store: storetest.SQLite(t), Env: service.Env{Now: time.Now}, Log: slog.New(slog.DiscardHandler), Getenv: func(n string) string {
		return map[string]string{"KICI_GLOBAL_WORKFLOWS_ENABLED": "true"}[n]
	}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Cluster().GlobalWorkflows || s.Org("a").SelfApproval || s.Org("a").AllowedRepos == nil {
		t.Error("a switch is on before anybody knows")
	}
	if err := s.Load(t.Context()); err != nil || !s.Cluster().GlobalWorkflows {
		t.Error(err)
	}
}

func TestXC111TwoWritersKeepBoth(t *testing.T) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		st := d.Open(t)
		r := newRig(t, st, nil)
		var wg sync.WaitGroup
		keys := []string{"queueMaxDepth", "maxFanoutHosts", "eventRouterMaxDispatchAttempts", "scalerProvisionMaxConsecutiveFailures"}
		for _, k := range keys {
			wg.Go(func() {
				if _, err := r.Apply(t.Context(), Change{Scope: ClusterScope, Set: set(k, "77")}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if c := r.Cluster(); c.QueueMaxDepth != 77 || c.MaxFanoutHosts != 77 || c.EventMaxAttempts != 77 || c.ProvisionMaxFailures != 77 || r.Version() != 4 {
			t.Errorf("version %d: %+v", r.Version(), c)
		}
	})
}

// Another process on the database has the change as soon as it is told.
func TestOthersHearOfIt(t *testing.T) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		st := d.Open(t)
		other := st
		if st.Dialect() == store.PostgreSQL {
			other = d.Open(t)
		}
		here, there := newRig(t, st, nil), newRig(t, other, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- there.Run(ctx) }()
		here.must(t, ClusterScope, "queueMaxDepth", "12")
		deadline := time.Now().Add(time.Minute)
		for there.Cluster().QueueMaxDepth != 12 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if there.Version() != 1 {
			t.Error("not heard")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A newer version's keys stay in the row when an older one changes others.
func TestUnknownStoredKeysStay(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st, nil)
		r.must(t, ClusterScope, "queueMaxDepth", "12")
		if err := st.Write(t.Context(), func(tx *store.Tx) error {
			row, err := tx.SettingsForUpdate(t.Context(), ClusterScope)
			if err != nil {
				return err
			}
			return tx.UpdateSettings(t.Context(), updateOf(row, `{"queueMaxDepth":0,"ofTomorrow":[1]}`))
		}); err != nil {
			t.Fatal(err)
		}
		r.must(t, ClusterScope, "maxFanoutHosts", "3")
		if c := r.Cluster(); c.MaxFanoutHosts != 3 || c.QueueMaxDepth != 50000 {
			t.Errorf("%+v", c) // a stored value out of its bounds does not count
		}
		rows, err := st.Read().SettingRows(t.Context())
		if err != nil || len(rows) != 1 || !strings.Contains(rows[0].Data, `"ofTomorrow":[1]`) {
			t.Error(rows, err)
		}
	})
}

func FuzzChange(f *testing.F) {
	f.Add(`{"queueMaxDepth":1}`)
	f.Add(`{"allowedRepos":[{"pattern":"a"}],"dashboardWrites":{"run.cancel":"disabled"},"queueTimeoutMs":0}`)
	s := scopeOf[Org]{keys: orgKeys}
	c := scopeOf[Cluster]{keys: clusterKeys, rules: clusterRules}
	s.setDefaults()
	c.setDefaults()
	s.base, c.base = s.normal, c.normal
	f.Fuzz(func(t *testing.T, text string) {
		var in map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &in) != nil {
			return
		}
		again(t, s, in)
		again(t, c, in)
	})
}

// again: what was accepted is accepted once more and changes nothing.
func again[T any](t *testing.T, s scopeOf[T], in map[string]json.RawMessage) {
	t.Helper()
	next, problems := s.merge(in, nil)
	if len(problems) > 0 {
		return
	}
	twice, problems := s.merge(next, next)
	if len(problems) > 0 || len(differences(next, next, twice)) > 0 {
		t.Errorf("%v became %v: %v", next, twice, problems)
	}
}
