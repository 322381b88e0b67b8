package scaler

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/fake"
	"github.com/kici-go/kici/internal/scaler/machinepool"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodeID = "node-1"

// rig is a node over a real store and a fake host, looked at tick by tick.
type rig struct {
	t      *testing.T
	st     *store.Store
	host   *fake.Host
	node   *Node
	now    atomic.Int64
	tokens atomic.Int64
	config string
	pools  string // folder of the machine pools
	grace  time.Duration
}

const oneScaler = `version: 1
globalMaxAgents: 20
scalers:
  - {name: one, type: fake, maxAgents: 10, maxConcurrentSpawns: 4, labelSets: [{labels: [linux]}]}
`

func newRig(t *testing.T, d *storetest.Database, config string) *rig {
	r := &rig{t: t, host: fake.NewHost(), config: config, pools: t.TempDir()}
	r.now.Store(1_000_000)
	d.Config.Now = func() time.Time { return time.UnixMilli(r.now.Load()) }
	r.st = d.Open(t)
	r.write(func(tx *store.Tx) error {
		if err := tx.InsertOrg(t.Context(), "default", 1); err != nil {
			return err
		}
		return tx.StartInstance(t.Context(), db.StartInstanceParams{InstanceID: nodeID, Name: "build-1", Version: "test", Now: 1})
	})
	r.start()
	return r
}

// start makes a node, as a started process does.
func (r *rig) start() {
	r.t.Helper()
	cfg, problems := ParseConfig("scalers.yaml", []byte(r.config), LoadOptions{Kinds: []backend.Kind{r.host.Kind()}})
	if cfg == nil {
		r.t.Fatal(problems)
	}
	node, err := New(r.deps(cfg))
	if err != nil {
		r.t.Fatal(err)
	}
	r.node = node
	r.t.Cleanup(func() { _ = node.Close() })
}

func (r *rig) deps(cfg *Config) Deps {
	settings := DefaultSettings()
	settings.SpawnTimeout = 5 * time.Second // of real time, for a Create that hangs
	settings.RetireGrace = r.grace
	return Deps{
		Store: r.st, Config: cfg, Kinds: []backend.Kind{r.host.Kind()},
		Load: func() (*Config, []Problem) {
			return ParseConfig("scalers.yaml", []byte(r.config), LoadOptions{Kinds: []backend.Kind{r.host.Kind()}})
		},
		Pools: machinepool.New(machinepool.Options{
			Dirs: []string{r.pools}, Instance: nodeID, Boot: "boot", Now: func() time.Time { return time.UnixMilli(r.now.Load()) }, Log: slog.New(slog.DiscardHandler),
		}),
		Host:     backend.Host{NodeID: nodeID, Log: slog.New(slog.DiscardHandler)},
		FreeDisk: func(string) (int64, error) { return 1 << 40, nil },
		URL:      func() string { return "ws://here/ws" },
		MintToken: func() (string, string, string) {
			n := r.tokens.Add(1)
			return fmt.Sprintf("kat_%d", n), fmt.Sprintf("hash-%d", n), "kat_"
		},
		Settings: settings, Env: service.Env{Now: func() time.Time { return time.UnixMilli(r.now.Load()) }, NewID: ci.NewID},
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}
}

func (r *rig) write(fn func(*store.Tx) error) {
	r.t.Helper()
	if err := r.st.Write(r.t.Context(), fn); err != nil {
		r.t.Fatal(err)
	}
}

// request records an agent, as placement does.
func (r *rig) request(id string, change ...func(*db.DispatchLaunchParams)) {
	p := db.DispatchLaunchParams{
		ID: id, OrgID: "default", NodeID: nodeID, Scaler: "one", Type: fake.Type, Labels: `["linux"]`, MandatoryLabels: `[]`, LabelSet: "linux",
		BoundJobID: sql.NullString{String: "job-" + id, Valid: true}, Now: r.now.Load(), CpuMilli: 1000,
	}
	for _, c := range change {
		c(&p)
	}
	r.write(func(tx *store.Tx) error { return tx.DispatchLaunch(r.t.Context(), p) })
}

func (r *rig) register(id string) {
	r.write(func(tx *store.Tx) error {
		a, err := tx.FleetAgent(r.t.Context(), id)
		if err != nil {
			return err
		}
		n, err := tx.FleetAdmitAgent(r.t.Context(), db.FleetAdmitAgentParams{
			ID: id, State: "online", Was: a.State, Now: sql.NullInt64{Int64: r.now.Load(), Valid: true}, Labels: a.Labels, MandatoryLabels: "[]", TokenHash: a.TokenHash, InstanceID: nodeID, SessionID: "s",
		})
		if err == nil && n != 1 {
			err = errors.New("not admitted")
		}
		return err
	})
}

func (r *rig) withdraw(id string) {
	r.write(func(tx *store.Tx) error {
		_, err := tx.DispatchWithdraw(r.t.Context(), r.now.Load(), ci.GoneWithdrawn, id)
		return err
	})
}

// tick looks once and waits for the work that it began.
func (r *rig) tick() {
	r.t.Helper()
	if err := r.node.tick(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.node.ops.idle.Wait()
}

func (r *rig) ticks(n int) {
	r.t.Helper()
	for range n {
		r.tick()
	}
}

func (r *rig) later(d time.Duration) { r.now.Add(d.Milliseconds()) }

func (r *rig) rows() map[string]db.NodeAgentsRow {
	r.t.Helper()
	rows, err := r.st.Read().NodeAgents(r.t.Context(), nodeID)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]db.NodeAgentsRow{}
	for _, row := range rows {
		out[row.ID] = row
	}
	return out
}

func (r *rig) state(id string) string {
	r.t.Helper()
	a, err := r.st.Read().FleetAgent(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	if a.GoneReason != "" {
		return a.State + "/" + a.GoneReason
	}
	return a.State
}

func (r *rig) want(id, state string) {
	r.t.Helper()
	if got := r.state(id); got != state {
		r.t.Errorf("%s is %s, want %s", id, got, state)
	}
}

func (r *rig) wantThings(ids ...string) {
	r.t.Helper()
	if got := r.host.Things(); !slices.Equal(got, ids) && len(got)+len(ids) > 0 {
		r.t.Errorf("on the host: %v, want %v", got, ids)
	}
}

func (r *rig) backoff() db.ScalerBackoff {
	r.t.Helper()
	b, err := r.st.Read().NodeBackoff(r.t.Context(), nodeID, "one")
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		r.t.Fatal(err)
	}
	return b
}

func each(t *testing.T, fn func(*testing.T, *rig)) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) { fn(t, newRig(t, d, oneScaler)) })
}

func TestAgentLivesFromRequestToGone(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.request("a")
		r.tick()
		r.want("a", "booting")
		spec, _ := r.host.Spec("a")
		if spec.Token != "kat_1" || spec.URL != "ws://here/ws" || spec.JobID != "job-a" || !slices.Equal(spec.Labels, []string{"linux"}) || len(spec.Launch) == 0 {
			t.Errorf("created with %+v", spec)
		}
		token, err := r.st.Read().FleetToken(t.Context(), "hash-1")
		if err != nil || token.AgentID != "a" || token.Type != "ephemeral" {
			t.Errorf("token %+v: %v", token, err)
		}
		row := r.rows()["a"]
		if !json.Valid([]byte(row.Launch)) || row.Launch == string(spec.Launch) {
			t.Errorf("launch %s", row.Launch)
		}
		r.register("a")
		r.tick()
		r.want("a", "online")
		r.host.Kill("a", "exited with 0")
		r.tick() // its session may still hand something over
		r.want("a", "online")
		r.later(3 * time.Second)
		r.tick()
		r.want("a", "ending/lost")
		r.tick()
		r.want("a", "gone/lost")
		r.wantThings()
		if _, err := r.st.Read().FleetToken(t.Context(), "hash-1"); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("the token outlives its agent: %v", err)
		}
		if b := r.backoff(); b.Failures != 0 {
			t.Errorf("XS-35: armed %+v", b)
		}
	})
}

func TestPublishesWhatPlacementReads(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.tick()
		rows, err := r.st.Read().NodeScalers(t.Context(), nodeID)
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		var spec placement.ScalerSpec
		if err := json.Unmarshal([]byte(rows[0].Spec), &spec); err != nil {
			t.Fatal(err)
		}
		set := spec.LabelSets[0]
		if !rows[0].Ready || rows[0].MaxAgents != 10 || spec.MaxConcurrentSpawns != 4 || !slices.Contains(set.Enriched, "kici:scaler:one") ||
			!slices.Contains(set.Enriched, "kici:role:builder") || slices.ContainsFunc(set.AgentLabels, func(l string) bool { return strings.HasPrefix(l, "kici:os:") }) {
			t.Errorf("published %+v %+v", rows[0], spec)
		}
		self, err := r.st.Read().ClusterInstance(t.Context(), nodeID)
		if err != nil || self.GlobalMaxAgents != 20 {
			t.Errorf("caps %+v: %v", self, err)
		}
	})
}

// XS-29, XS-31, XS-33: what the host refuses arms the back-off, in the transaction that releases, once for each agent.
func TestXS29RefusalArmsTheBackoff(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.host.OnCreate = func(context.Context, backend.Spec) error {
			return fmt.Errorf("%w: nvidia-smi: no devices", backend.ErrRefused)
		}
		want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute}
		for i, wait := range want {
			id := fmt.Sprint("a", i)
			r.request(id)
			r.tick()
			r.want(id, "ending/launch-failed")
			b := r.backoff()
			until := r.now.Load() + wait.Milliseconds()
			if r.st.Dialect() == store.PostgreSQL { // the database's clock does not jump with ours
				until = max(b.UntilAt, b.UpdatedAt+wait.Milliseconds())
			}
			if b.Failures != int64(i+1) || b.UntilAt != until || !strings.Contains(b.LastError, "no devices") {
				t.Errorf("after %d failures: %+v, want until +%s", i+1, b, wait)
			}
			r.ticks(2)
			r.want(id, "gone/launch-failed")
			if again := r.backoff(); again != b {
				t.Errorf("counted twice: %+v", again)
			}
			r.later(wait)
		}
		r.wantThings()
	})
}

func TestXS30TransientFailureIsNotCounted(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.host.OnCreate = func(context.Context, backend.Spec) error { return fmt.Errorf("%w: registry is away", backend.ErrInfra) }
		r.request("a")
		r.ticks(3)
		r.want("a", "gone/launch-failed")
		if b := r.backoff(); b.Failures != 0 || b.UntilAt != b.UpdatedAt+firstPause.Milliseconds() {
			t.Errorf("armed %+v", b)
		}
	})
}

// XS-30: each pause is twice as long as the one before, up to half a minute, whoever takes the scaler up in between; launches that fail
// together count once, and the first agent that registers ends the series.
func TestXS30PausesGrow(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler) // the clock of PostgreSQL would not jump with ours
	r.host.OnCreate = func(context.Context, backend.Spec) error { return fmt.Errorf("%w: registry is away", backend.ErrInfra) }
	fail := func(id string) int64 {
		t.Helper()
		r.request(id)
		r.request(id + "-too")
		r.ticks(3)
		b := r.backoff()
		if b.Failures != 0 || b.LastError == "" {
			t.Errorf("%+v", b)
		}
		return (b.UntilAt - b.UpdatedAt) / 1000
	}
	for i, want := range []int64{1, 2, 4, 8, 16, 30, 30} {
		if got := fail(fmt.Sprint("a", i)); got != want {
			t.Errorf("pause %d is %d s, want %d", i, got, want)
		}
		r.later(time.Duration(want) * time.Second)
		if i == 2 {
			r.start() // another process
		}
	}
	r.host.OnCreate = nil
	r.request("b")
	r.tick()
	r.register("b")
	r.write(func(tx *store.Tx) error { _, err := tx.FleetClearBackoff(t.Context(), nodeID, "one"); return err }) // as fleet does (MG-33)
	r.host.OnCreate = func(context.Context, backend.Spec) error { return fmt.Errorf("%w: registry is away", backend.ErrInfra) }
	if got := fail("c"); got != 1 {
		t.Errorf("after a success: %d s", got)
	}
}

// XS-30: a node that is asked again and again by a queue that does not give up bothers its host less and less, and starts the agent soon
// after the host can.
func TestXS30HostIsNotBothered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storetest.SQLiteDatabase(t)
		r := newRig(t, d, oneScaler)
		clock := func() { r.now.Store(time.Now().UnixMilli()) }
		clock()
		began, until := time.Now(), 5*time.Minute
		var tried []time.Duration
		var mu sync.Mutex
		r.host.OnCreate = func(context.Context, backend.Spec) error {
			mu.Lock()
			defer mu.Unlock()
			tried = append(tried, time.Since(began).Round(time.Second))
			if time.Since(began) < until {
				return fmt.Errorf("%w: registry is away", backend.ErrInfra)
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.node.Run(ctx) }()
		for n := 0; len(r.host.Running()) == 0 && time.Since(began) < 2*until; n++ {
			if clock(); r.backoff().UntilAt <= r.now.Load() && len(r.rows()) == 0 { // as placement asks
				r.request(fmt.Sprint("a", n))
				r.node.wake.Signal()
			}
			time.Sleep(250 * time.Millisecond)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for i, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			if got := tried[i+1] - tried[i]; got < pause*time.Second || got > (pause+2)*time.Second {
				t.Errorf("pause %d was %s, want %d s: %v", i, got, pause, tried)
			}
		}
		if last := tried[len(tried)-1]; last < until || last > until+33*time.Second || len(r.host.Running()) != 1 {
			t.Errorf("it ran after %s, %d tries", last, len(tried))
		}
		t.Logf("%d tries in %s", len(tried), tried[len(tried)-1])
		if err := r.node.Close(); err != nil {
			t.Error(err)
		}
		if err := r.st.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

func TestPauseAfter(t *testing.T) {
	l := Limits{BackoffBase: 30 * time.Second, BackoffMax: 15 * time.Minute}
	row := func(failures, updated, until int64) db.ScalerBackoff {
		return db.ScalerBackoff{Failures: failures, UpdatedAt: updated * 1000, UntilAt: until * 1000}
	}
	for _, c := range []struct {
		name string
		b    db.ScalerBackoff
		now  int64
		room bool
		want time.Duration
	}{
		{"nothing was", db.ScalerBackoff{}, 100, false, time.Second},
		{"a second time", row(0, 100, 101), 102, false, 2 * time.Second},
		{"at the bound", row(0, 100, 116), 116, false, 30 * time.Second},
		{"beyond it", row(0, 100, 130), 131, false, 30 * time.Second},
		{"together with another", row(0, 100, 101), 100, false, 0},
		{"only no room", row(0, 100, 116), 117, true, time.Second},
		{"long ago", row(0, 100, 116), 1000, false, time.Second},
		{"during the back-off", row(2, 100, 160), 120, false, 0},
		{"after the back-off", row(2, 100, 160), 161, false, time.Second},
		{"a second time after the back-off", row(2, 161, 162), 163, false, 2 * time.Second},
	} {
		if got := pauseAfter(c.b, c.now*1000, c.room, l); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// XS-27: an agent that dies inside Create leaves its last words, too.
func TestXS27DeathInCreate(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.host.OnCreate = func(context.Context, backend.Spec) error {
			return &backend.Died{Detail: "exited with 1", Tail: []string{"panic: oops"}}
		}
		r.request("a")
		r.ticks(3)
		r.want("a", "gone/launch-failed")
		fs, err := r.st.Read().ReadScalerFailures(t.Context(), 0, "default")
		if err != nil || len(fs) != 1 || fs[0].Tail != "panic: oops" || fs[0].Error != "the agent died before it registered: exited with 1" {
			t.Errorf("failures %+v, %v", fs, err)
		}
		if b := r.backoff(); b.Failures != 1 {
			t.Errorf("backoff %+v", b)
		}
	})
}

// XS-27: the process exits before it registers: dropped at once, with its last words, and the job is told.
func TestXS27DeathBeforeRegistering(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.write(func(tx *store.Tx) error { return queuedJob(t, tx, "job-a") })
		r.request("a")
		r.tick()
		r.host.Kill("a", "exited with 3", "panic: oops")
		r.ticks(2)
		r.want("a", "gone/launch-failed")
		r.wantThings()
		if b := r.backoff(); b.Failures != 1 || b.LastAgent != "a" || !strings.Contains(b.LastError, "exited with 3") {
			t.Errorf("backoff %+v", b)
		}
		job, err := r.st.Read().LockJob(t.Context(), "job-a")
		if err != nil || !strings.Contains(job.ProvisioningError, "scaler one: the agent died before it registered: exited with 3") {
			t.Errorf("job says %q: %v", job.ProvisioningError, err)
		}
	})
}

func queuedJob(t *testing.T, tx *store.Tx, id string) error {
	_, err := tx.InsertRun(t.Context(), db.InsertRunParams{ID: "run", OrgID: "default", Number: 1, Repo: "r", Status: "pending"})
	if err != nil {
		return err
	}
	return tx.InsertRunJob(t.Context(), db.InsertRunJobParams{ID: id, RunID: "run", OrgID: "default", Name: "x", Status: "queued"})
}

// XS-26: alive but never registers.
func TestXS26NeverRegisters(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.request("a")
		r.tick()
		r.later(299 * time.Second)
		r.tick()
		r.want("a", "booting")
		r.later(time.Second)
		r.ticks(2)
		r.want("a", "gone/spawn-timeout")
		r.wantThings()
	})
}

// XS-23, XS-24: Create hangs: its permit is free at the deadline, and what still comes of it is destroyed.
func TestXS23SpawnHangs(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), strings.Replace(oneScaler, "maxConcurrentSpawns: 4", "maxConcurrentSpawns: 1", 1))
	release := make(chan struct{})
	var once sync.Once
	defer once.Do(func() { close(release) })
	r.node.d.Settings.SpawnTimeout = 50 * time.Millisecond
	r.host.OnCreate = func(_ context.Context, s backend.Spec) error {
		if s.AgentID == "a" {
			<-release // ignores its context
		}
		return nil
	}
	r.request("a")
	r.later(time.Second)
	r.request("b")
	r.tick() // returns when the permit of a is free
	r.want("a", "ending/spawn-timeout")
	r.want("b", "requested")
	r.tick()
	r.want("a", "gone/spawn-timeout")
	r.want("b", "booting")
	once.Do(func() { close(release) })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		r.tick()
		if slices.Equal(r.host.Things(), []string{"b"}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the late agent is kept: %v", r.host.Things())
		}
	}
}

// XS-25: the row ends while Create runs.
func TestXS25WithdrawnWhileStarting(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	entered := make(chan struct{})
	r.host.OnCreate = func(ctx context.Context, _ backend.Spec) error {
		close(entered)
		<-ctx.Done()
		return nil // it was made all the same
	}
	r.request("a")
	if err := r.node.tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-entered
	r.withdraw("a")
	r.ticks(3)
	r.want("a", "gone/withdrawn")
	r.wantThings()
	if b := r.backoff(); b.Failures != 0 {
		t.Errorf("a withdrawal was counted: %+v", b)
	}
}

// XS-53, XS-52: Delete fails: the row stays, so that it is counted, and Delete is repeated; it is never done twice at once.
func TestXS53DeleteFailsAndIsRepeated(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var calls atomic.Int64
		r.host.OnDelete = func(context.Context, backend.Ref) error {
			if calls.Add(1) < 3 {
				return errors.New("device busy")
			}
			return nil
		}
		r.request("a")
		r.tick()
		r.withdraw("a")
		r.tick()
		if row := r.rows()["a"]; row.State != "ending" || row.DeleteAttempts != 1 {
			t.Errorf("row %+v", row)
		}
		r.ticks(3) // not before its time
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
		r.later(time.Second)
		r.tick()
		r.later(2 * time.Second)
		r.ticks(2)
		r.want("a", "gone/withdrawn")
		r.wantThings()
		if calls.Load() != 3 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// XS-56, XS-58: the process is killed anywhere; its successor re-adopts what runs, repeats what was not made, and ends what has no row.
func TestXS56RestartAnywhere(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"dead", "online", "vanished"} {
			r.request(id)
		}
		r.tick()
		r.register("online")
		r.register("vanished")
		for _, id := range []string{"half", "made", "unmade"} {
			r.request(id)
		}
		r.recordOnly() // kill -9 here
		r.host = fake.NewHost()
		r.host.Put("one", backend.Instance{AgentID: "made", Running: true, Launch: json.RawMessage(`{"made":true}`)})
		r.host.Put("one", backend.Instance{AgentID: "half", Unstarted: true})
		r.host.Put("one", backend.Instance{AgentID: "dead", Detail: "exited with 1"})
		r.host.Put("one", backend.Instance{AgentID: "online", Running: true})
		r.host.Put("one", backend.Instance{AgentID: "orphan", Running: true})
		r.start()
		r.ticks(4)
		r.want("made", "booting")
		r.want("unmade", "booting")
		r.want("half", "booting")
		r.want("online", "online")
		r.want("dead", "gone/launch-failed")
		r.later(lostGrace * time.Millisecond)
		r.ticks(2)
		r.want("vanished", "gone/lost")
		r.wantThings("half", "made", "online", "unmade")
		// A repeated start has a new token, and the old one is worth nothing.
		spec, _ := r.host.Spec("unmade")
		hash := "hash-" + strings.TrimPrefix(spec.Token, "kat_")
		if tok, err := r.st.Read().FleetToken(t.Context(), hash); err != nil || tok.AgentID != "unmade" {
			t.Errorf("token %+v: %v", tok, err)
		}
		for n := 4; n <= 6; n++ { // of the starts that were recorded only
			tok, err := r.st.Read().FleetToken(t.Context(), fmt.Sprint("hash-", n))
			if err == nil && tok.AgentID != "made" {
				t.Errorf("the first token of %s is still there", tok.AgentID)
			}
		}
	})
}

// recordOnly does half a tick: what it decides is recorded, and then the process is gone.
func (r *rig) recordOnly() {
	r.t.Helper()
	rows, err := r.st.Read().NodeAgents(r.t.Context(), nodeID)
	if err != nil {
		r.t.Fatal(err)
	}
	v := View{Now: r.now.Load(), Rows: viewRows(rows), Scalers: r.node.list(r.t.Context())}
	if _, err := r.node.record(r.t.Context(), Reconcile(v).Actions, rows); err != nil {
		r.t.Fatal(err)
	}
}

func TestXS105DrainingStartsNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.request("before")
		r.tick()
		r.write(func(tx *store.Tx) error {
			_, err := tx.SetInstanceDraining(t.Context(), true, nodeID)
			return err
		})
		r.request("after")
		r.tick()
		r.want("before", "booting")
		r.want("after", "gone/withdrawn")
		r.wantThings("before")
	})
}

func TestEndAllLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b", "c"} {
			r.request(id)
		}
		r.tick()
		r.register("a")
		r.request("d")
		r.host.Put("one", backend.Instance{AgentID: "orphan", Running: true})
		if err := r.node.EndAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.wantThings()
		for _, id := range []string{"a", "b", "c", "d"} {
			r.want(id, "gone/shutdown")
		}
	})
}

func TestEndAllSaysWhatIsLeft(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	r.host.OnDelete = func(context.Context, backend.Ref) error { return errors.New("stuck") }
	r.request("a")
	r.tick()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := r.node.EndAll(ctx); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A scaler that left the configuration keeps its agents until they are gone (MG-47), and starts nothing.
func TestRemovedScalerRetires(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.request("a")
		r.tick()
		r.register("a")
		r.config = strings.ReplaceAll(oneScaler, "name: one", "name: two")
		r.start()
		r.request("b")
		r.tick()
		rows, _ := r.st.Read().NodeScalers(t.Context(), nodeID)
		if len(rows) != 2 || rows[1].Name != "one" || !rows[1].Retiring || rows[0].Retiring {
			t.Errorf("rows %+v", rows)
		}
		r.want("a", "online")
		r.want("b", "gone/withdrawn")
		r.host.Kill("a", "exited with 0")
		r.later(lostGrace * time.Millisecond)
		r.tick()
		r.later(lostGrace * time.Millisecond)
		r.ticks(3)
		r.want("a", "gone/lost")
		if rows, _ := r.st.Read().NodeScalers(t.Context(), nodeID); len(rows) != 1 {
			t.Errorf("the retired scaler is still published: %+v", rows)
		}
	})
}

// A launch that was given up may come to something after its scaler has lost its last agent: that is found and ended too, also by the
// next process.
func TestRetiredScalerIsLookedAtForAWhile(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	r.grace = time.Minute
	r.request("a")
	r.tick()
	r.config = strings.ReplaceAll(oneScaler, "name: one", "name: two")
	r.start()
	r.withdraw("a")
	r.ticks(3)
	r.want("a", "gone/withdrawn")
	for range 2 {
		r.host.Put("one", backend.Instance{AgentID: "late", Running: true})
		r.ticks(2)
		if got := r.host.Things(); len(got) > 0 {
			t.Errorf("on the host: %v", got)
		}
		r.start()
	}
	r.tick()
	r.later(2 * time.Minute)
	r.ticks(2)
	if rows, _ := r.st.Read().NodeScalers(t.Context(), nodeID); len(rows) != 1 {
		t.Errorf("the retired scaler is still published: %+v", rows)
	}
}

// XS-9: a host that cannot be prepared makes one scaler not ready, says why, and is tried again.
func TestUnpreparedScalerIsNotReady(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), strings.Replace(oneScaler, "scalers:", "scalers:\n  - {name: two, type: fake, maxAgents: 1, labelSets: [{labels: [b]}]}", 1))
	broken := true
	r.host.OnPrepare = func(scaler string) error {
		if scaler == "one" && broken {
			return errors.New("no device")
		}
		return nil
	}
	r.request("a")
	r.tick()
	r.want("a", "gone/withdrawn")
	ready := func() string {
		rows, _ := r.st.Read().NodeScalers(t.Context(), nodeID)
		out := ""
		for _, row := range rows {
			out += fmt.Sprintf("%s %v %s;", row.Name, row.Ready, row.NotReady)
		}
		return out
	}
	if got := ready(); got != "two true ;one false no device;" {
		t.Errorf("published %q", got)
	}
	broken = false
	r.later(prepareRetry)
	r.tick()
	if got := ready(); got != "two true ;one true ;" {
		t.Errorf("published %q", got)
	}
}

// XS-82 in spirit: a listing that fails proves nothing.
func TestFailedListingEndsNobody(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	r.request("a")
	r.request("b")
	r.tick()
	r.register("a")
	r.host.OnList = func(string) error { return errors.New("proc is gone") }
	r.ticks(3)
	r.want("a", "online")
	r.want("b", "booting")
}

// Run does all of it by itself, woken by the store.
func TestRunIsWoken(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.node.Run(ctx) }()
	r.request("a")
	r.st.Publish(store.TopicAgents, nodeID)
	deadline := time.Now().Add(5 * time.Second) // less than the loop's own interval
	for r.state("a") != "booting" && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	r.want("a", "booting")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := r.host.Running(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("agents went with the node: %v", got)
	}
}

// XS-32: one scaler fails; the others are not deferred, whatever their type.
func TestXS32BackoffIsPerScaler(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler+"  - {name: two, type: fake, maxAgents: 1, labelSets: [{labels: [other]}]}\n")
	r.host.OnCreate = func(_ context.Context, s backend.Spec) error {
		if s.LabelSet == "linux" {
			return fmt.Errorf("%w: no", backend.ErrRefused)
		}
		return nil
	}
	r.request("a")
	r.request("b", func(p *db.DispatchLaunchParams) { p.Scaler, p.LabelSet, p.Labels = "two", "other", `["other"]` })
	r.tick()
	r.want("b", "booting")
	all, err := r.st.Read().NodeBackoffs(t.Context(), nodeID)
	if err != nil || len(all) != 1 || all[0].Scaler != "one" {
		t.Errorf("deferred %+v: %v", all, err)
	}
}

// XS-40: who waits for a slot is told when one is free.
func TestXS40FreedSlotWakesTheQueue(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	r.request("a")
	r.tick()
	r.withdraw("a")
	queue := r.st.Subscribe(store.TopicQueue, "")
	defer queue.Close()
	r.tick()
	r.want("a", "gone/withdrawn")
	select {
	case <-queue.C():
	case <-time.After(time.Minute):
		t.Error("nobody was told")
	}
}

// XS-57: a ledger that cannot be read ends nothing and stops nothing: the loop tries again.
func TestXS57UnreadableLedgerEndsNobody(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	r.request("a")
	r.tick()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.node.tick(ctx); err == nil {
		t.Fatal("the read did not fail: the test shows nothing")
	}
	r.tick()
	r.want("a", "booting")
	r.wantThings("a")
}

// What a launch says of itself is in its row while it lasts, where people look, and no longer; it is written now and then only.
func TestLaunchSaysWhatItDoes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		said, goOn := make(chan struct{}), make(chan struct{})
		r.host.OnCreate = func(_ context.Context, s backend.Spec) error {
			s.Progress("pulling golang:1.26")
			<-said
			for i := range 1000 {
				s.Progress(fmt.Sprintf("pulling golang:1.26: %d MB of 1.0 GB", i+1))
			}
			<-goOn
			return nil
		}
		r.request("a")
		if err := r.node.tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		detail := func() string {
			rows, err := r.st.Read().ReadScalerLaunches(t.Context(), "default")
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) == 0 {
				return ""
			}
			return rows[0].Detail
		}
		wait := func(want string) {
			t.Helper()
			for deadline := time.Now().Add(20 * time.Second); detail() != want; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("it says %q, want %q", detail(), want)
				}
			}
		}
		wait("pulling golang:1.26")
		close(said)
		wait("pulling golang:1.26: 1000 MB of 1.0 GB")
		close(goOn)
		r.node.ops.idle.Wait()
		r.want("a", "booting")
		wait("")
		// A launch that has ended says nothing more.
		if n, err := func() (n int64, err error) {
			err = r.st.Write(t.Context(), func(tx *store.Tx) error { n, err = tx.NodeAgentDetail(t.Context(), "late", "a"); return err })
			return n, err
		}(); err != nil || n != 0 {
			t.Errorf("%d %v", n, err)
		}
	})
}
