package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/agent"
	"github.com/kici-go/kici/internal/agent/sandbox"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"agent", sandbox.Command, wire.SandboxCheck}, os.Args[1]) { // the servers of these tests start this binary as their agent
		os.Exit(Main(context.Background(), os.Args))
	}
	if filepath.Base(os.Args[0]) == "kici" { // and their steps find it as kici
		os.Exit(Main(context.Background(), os.Args))
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

// boot starts a server for a test and returns it with the function that stops it.
func boot(t *testing.T, o Options) (*Server, func() error) {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	o.AllowRoot = true
	if o.StoreHooks == nil {
		o.StoreHooks = func(c *store.Config) { c.Unsynced = true }
	}
	s, err := NewServer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Started():
	case err := <-done:
		t.Fatalf("server: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready after a minute")
	}
	var result error
	stopped := false
	stop := func() error {
		if !stopped {
			stopped = true
			cancel()
			result = <-done
		}
		return result
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s, stop
}

func get(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func TestSurfaces(t *testing.T) {
	s, _ := boot(t, Options{})
	if !s.FirstStart() || len(s.AdminToken()) != 64 {
		t.Errorf("first start %v, token of %d characters", s.FirstStart(), len(s.AdminToken()))
	}
	info, err := os.Stat(s.data.File("admin.token"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("admin.token: %v, %v", info, err)
	}
	for path, want := range map[string]int{
		"/health": 200, "/ready": 200, "/metrics": 200, "/version": 200, "/api/v1/capabilities": 200, "/login": 200,
		"/api/v1/admin/runs": 401, "/ws": 426, "/api/v1/agent/jobs/x": 401, "/webhook/x/generic/y": 405, "/api/v1/none": 404,
	} {
		if code, body := get(t, s.URL()+path); code != want {
			t.Errorf("GET %s: %d, want %d: %.200s", path, code, want, body)
		}
	}
	if code, body := get(t, s.URL()+"/api/v1/admin/runs", "Authorization", "Bearer "+s.AdminToken()); code != 200 {
		t.Errorf("runs with the token: %d %s", code, body)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) { // those of scalers come with the node's first look
		_, body := get(t, s.URL()+"/metrics")
		if strings.Contains(body, "kici_orch_cluster_is_leader") && strings.Contains(body, "kici_orch_scaler_cpus_used") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("metrics are missing")
		}
	}
	if s.state.set("database"); true {
		if code, body := get(t, s.URL()+"/ready"); code != 503 || !strings.Contains(body, `"failing":"database"`) {
			t.Errorf("not ready: %d %s", code, body)
		}
		if code, _ := get(t, s.URL()+"/health"); code != 200 {
			t.Errorf("health depends on readiness: %d", code)
		}
	}
}

// XC-151: a disk that fills up is seen where machines look, and logged once; /health asks nobody.
func TestXC151DiskInReady(t *testing.T) {
	const all = 1 << 62
	for _, c := range []struct {
		name       string
		fail, warn int64
		code       int
		body, log  string
	}{
		{"room", 1, 1, 200, `{"ready":true}`, ""},
		{"little", 1, all, 200, `{"ready":true,"warnings":["disk"]}`, "fills up"},
		{"none", all, all, 503, `{"failing":"disk","ready":false}`, "almost full"},
	} {
		var said lockedBuffer
		s, stop := boot(t, Options{
			Tune: func(t *Tuning) { t.DiskFail, t.DiskWarn = c.fail, c.warn }, Log: slog.New(slog.NewTextHandler(&said, nil)),
		})
		for range 3 {
			if code, body := get(t, s.URL()+"/ready"); code != c.code || strings.TrimSpace(body) != c.body {
				t.Errorf("%s: %d %s", c.name, code, body)
			}
		}
		if code, _ := get(t, s.URL()+"/health"); code != 200 {
			t.Errorf("%s: health answers %d", c.name, code)
		}
		if _, body := get(t, s.URL()+"/metrics"); !regexp.MustCompile(`(?m)^kici_orch_data_dir_free_bytes [1-9]`).MatchString(body) {
			t.Errorf("%s: the metric is missing", c.name)
		}
		_ = stop()
		if n := strings.Count(said.String(), "the disk of the data directory"); c.log == "" && n != 0 || c.log != "" && (n != 1 || !strings.Contains(said.String(), c.log)) {
			t.Errorf("%s: %d lines in %s", c.name, n, said.String())
		}
	}
}

// lockedBuffer takes what many write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Every metric that is there is filled: a server that drains says so, and what the audit log loses is counted.
func TestGauges(t *testing.T) {
	s, _ := boot(t, Options{})
	err := s.store.Write(t.Context(), func(tx *store.Tx) error {
		_, err := tx.SetInstanceDraining(t.Context(), true, s.data.InstanceID())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.refreshGauges(t.Context())
	_, body := get(t, s.URL()+"/metrics")
	for _, want := range []string{
		"kici_orchestrator_draining 1", "kici_orch_access_log_write_failures_total 0", `kici_orch_ingest_shed_total{reason="cap_full"} 0`,
		`kici_orch_pg_listen_connected{channel="kici"} 1`, "kici_orch_pg_listen_reconnects_total 0", "kici_orch_ingest_overflow_buffered 0", "kici_orch_ingest_admitted_total 0",
		"kici_orch_ingest_inflight 0", "kici_orch_config_version 0",
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

func TestBasePath(t *testing.T) {
	s, _ := boot(t, Options{BasePath: "/tools/kici/"})
	if !strings.HasSuffix(s.URL(), "/tools/kici") {
		t.Errorf("URL %s", s.URL())
	}
	root := strings.TrimSuffix(s.URL(), "/tools/kici")
	for url, want := range map[string]int{s.URL() + "/health": 200, s.URL() + "/login": 200, root + "/health": 200, root + "/login": 404, s.URL(): 200} {
		if code, body := get(t, url); code != want {
			t.Errorf("GET %s: %d, want %d: %.100s", url, code, want, body)
		}
	}
}

// A second start finds everything as it was.
func TestRestartKeepsIdentity(t *testing.T) {
	dir := t.TempDir()
	s, stop := boot(t, Options{DataDir: dir})
	token, id := s.AdminToken(), s.data.InstanceID()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s, _ = boot(t, Options{DataDir: dir})
	if s.FirstStart() || s.AdminToken() != token || s.data.InstanceID() != id {
		t.Errorf("first %v, token kept %v, id kept %v", s.FirstStart(), s.AdminToken() == token, s.data.InstanceID() == id)
	}
	for range 200 {
		if term, leading := s.leader.Term(); leading && term >= 2 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a single server does not lead")
}

// Everything that a user can get wrong at the start is one clear error.
func TestStartErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // local
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	used := t.TempDir()
	boot(t, Options{DataDir: used})
	file := filepath.Join(t.TempDir(), "file")
	bad := filepath.Join(t.TempDir(), "scalers.yaml")
	for name, data := range map[string]string{file: "", bad: "version: 1\nscalers:\n  - name: x\n    type: bare-metal\n    maxAgnets: 2\n"} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newer := t.TempDir()
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"port in use":     {Options{Port: taken.Addr().(*net.TCPAddr).Port}, "is in use by another program"},
		"not our address": {Options{Host: "192.0.2.1"}, "is no address of this machine"},
		"data dir in use": {Options{DataDir: used}, "is used by another kici server"},
		"no directory":    {Options{DataDir: filepath.Join(file, "x")}, "--data-dir"},
		"bad scalers":     {Options{ScalerConfig: bad}, "maxAgnets"},
		"no scalers":      {Options{ScalerConfig: filepath.Join(newer, "none.yaml")}, "none.yaml"},
		"bad base path":   {Options{BasePath: "/a/../b"}, "base path"},
		"bad proxy":       {Options{TrustedProxies: []string{"proxy.example.org"}}, "--trusted-proxies"},
		"bad on-stop":     {Options{OnStop: "kill"}, "--on-stop"},
		"bad key":         {Options{SecretKey: "short"}, "KICI_SECRET_KEY"},
		"bad database":    {Options{DatabaseURL: "postgres://127.0.0.1:1/x?connect_timeout=1"}, "open store"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.o.DataDir == "" {
				c.o.DataDir = t.TempDir()
			}
			c.o.AllowRoot = true
			s, err := NewServer(t.Context(), c.o)
			if err == nil {
				_ = s.Close()
				t.Fatal("it starts")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
		})
	}
	if _, err := NewServer(t.Context(), Options{DataDir: used}); !errors.Is(err, cluster.ErrLocked) {
		t.Errorf("locked: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	if err := checkEnvironment([]string{"KICI_PORT=1", "KICI_AGENT_ENV_GOPROXY=x", "HOME=/", "KICI_TEST_POSTGRES=x"}); err != nil {
		t.Error(err)
	}
	err := checkEnvironment([]string{"KICI_PROT=1", "KICI_DATADIR=x"})
	if err == nil || !strings.Contains(err.Error(), "KICI_PROT is not known; did you mean KICI_PORT?") || !strings.Contains(err.Error(), "KICI_DATA_DIR") {
		t.Errorf("got %v", err)
	}
	cmd := ServerCommand()
	env := map[string]string{"KICI_PORT": "4711", "KICI_HOST": "::1", "KICI_ALLOW_ROOT": "true"}
	lookup := func(n string) (string, bool) { v, ok := env[n]; return v, ok }
	if err := cmd.Flags().Set("host", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	if err := overlay(cmd.Flags(), lookup); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"port": "4711", "host": "127.0.0.1", "allow-root": "true"} {
		if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", flag, got, want)
		}
	}
	env["KICI_PORT"] = "many"
	if err := overlay(ServerCommand().Flags(), lookup); err == nil || !strings.Contains(err.Error(), "KICI_PORT") {
		t.Errorf("got %v", err)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, ok := flagVariables[f.Name]; !ok {
			t.Errorf("--%s has no variable", f.Name)
		}
	})
	for _, v := range flagVariables {
		if checkEnvironment([]string{v + "=x"}) != nil {
			t.Errorf("%s is not a known variable", v)
		}
	}
}

// Server, agent, client and step may stand in one environment: each takes the names of the others, and refuses misspelt ones (D20).
func TestOneEnvironmentForAll(t *testing.T) {
	var all []string
	for _, name := range slices.Concat(knownVariables, roomVariables(), setting.Variables(), agent.Variables()) {
		if name != "KICI_SANDBOX" && name != "KICI_CLAIM_CODE" { // known, and refused until they are built
			all = append(all, name+"=1")
		}
	}
	all = append(all, "KICI_PROPERTIES=a=b")
	if err := checkEnvironment(all); err != nil {
		t.Errorf("the server: %v", err)
	}
	if _, err := agent.ConfigFromEnv(all, setting.Variables()...); err != nil {
		t.Errorf("the agent: %v", err)
	}
	if _, err := agent.ConfigFromEnv([]string{"KICI_ORCHESTRATOR=x"}); err == nil {
		t.Errorf("a misspelt name: %v", err)
	}
}

// What the environment says reaches the rooms, and every such variable is documented.
func TestVariablesReachTheRooms(t *testing.T) {
	env := map[string]string{
		"KICI_QUEUE_MAX_DEPTH": "7", "KICI_QUEUE_TIMEOUT_MS": "1001", "KICI_DISPATCH_ACK_TIMEOUT_MS": "1002", "KICI_RECOVERY_GRACE_MS": "1003",
		"KICI_UNROUTABLE_GRACE_MS": "1004", "KICI_JOB_STALE_MS": "1005", "KICI_SCALER_SPAWN_TIMEOUT_MS": "1006", "KICI_AGENT_TOKEN_TTL_MS": "1007",
		"KICI_SCALER_PROVISION_BACKOFF_BASE_MS": "1008", "KICI_SCALER_PROVISION_BACKOFF_MAX_MS": "1009", "KICI_SCALER_PENDING_SWEEP_INTERVAL_MS": "1010",
		"KICI_CONCURRENCY_WAIT_TIMEOUT_MS": "1011", varMirrorMax: "2097152",
	}
	s := &Server{}
	if err := s.setDefaults(Options{Getenv: func(n string) string { return env[n] }}); err != nil {
		t.Fatal(err)
	}
	u := s.tuning
	if u.Run.QueueMaxDepth != 7 || u.MirrorMax != 2<<20 {
		t.Errorf("queue depth %d, mirror %d", u.Run.QueueMaxDepth, u.MirrorMax)
	}
	for i, d := range []time.Duration{
		u.Run.QueueTimeout, u.Dispatch.AckTimeout, u.Dispatch.RecoveryGrace, u.Dispatch.UnroutableGrace, u.Dispatch.JobStale,
		u.Scaler.SpawnTimeout, u.Scaler.TokenTTL, u.Scaler.BackoffBase, u.Scaler.BackoffMax, u.Scaler.Interval,
		u.Run.ConcurrencyWait,
	} {
		if d != time.Duration(1001+i)*time.Millisecond {
			t.Errorf("setting %d is %s", i, d)
		}
	}
	if u.Fleet.AckWithin != u.Dispatch.AckTimeout || u.Fleet.Grace != u.Dispatch.RecoveryGrace {
		t.Errorf("fleet and dispatch do not agree: %+v", u.Fleet)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range roomVariables() {
		if env[name] == "" {
			t.Errorf("%s is not in this test", name)
		}
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/operations.md does not have %s", name)
		}
	}
	for _, name := range flagVariables {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/operations.md does not have %s", name)
		}
	}
}

// Behind a trusted proxy failed logins count for the client that it names; from anybody else the header is nothing.
func TestTrustedProxies(t *testing.T) {
	s := &Server{}
	if err := s.setDefaults(Options{TrustedProxies: []string{"10.0.0.0/8", "192.0.2.1"}}); err != nil {
		t.Fatal(err)
	}
	var got string
	h := s.fromClient(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }))
	for _, c := range []struct{ peer, forwarded, want string }{
		{"10.1.2.3:99", "203.0.113.9", "203.0.113.9:0"},
		{"192.0.2.1:99", "203.0.113.9, 198.51.100.2, 10.9.9.9", "198.51.100.2:0"},
		{"192.0.2.2:99", "203.0.113.9", "192.0.2.2:0"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("X-Forwarded-For", c.forwarded)
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got != c.want {
			t.Errorf("%s with %s is %s, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}

// XC-109: a data directory is not given to another cluster's database.
func TestXC109ForeignDataDirectory(t *testing.T) {
	dir := t.TempDir()
	s, stop := boot(t, Options{DataDir: dir, ClusterName: "one"})
	if s.cluster.Name != "one" || s.cluster.ID == "" {
		t.Errorf("cluster %+v", s.cluster)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kici.db", "kici.db-wal", "kici.db-shm"} {
		_ = os.Remove(filepath.Join(dir, name))
	}
	sentinel := filepath.Join(dir, blobsFolder, cluster.Sentinel)
	_, err := NewServer(t.Context(), Options{DataDir: dir, AllowRoot: true})
	if !errors.Is(err, cluster.ErrForeign) || !strings.Contains(err.Error(), sentinel) {
		t.Fatalf("got %v", err)
	}
	if err := os.Remove(sentinel); err != nil {
		t.Fatal(err)
	}
	boot(t, Options{DataDir: dir})
}

func TestWorkerIsRefusedWithASentence(t *testing.T) {
	err := runServer(t.Context(), serverFlags{role: "worker"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "not built yet") {
		t.Errorf("got %v", err)
	}
}

func TestGreeting(t *testing.T) {
	s, _ := boot(t, Options{})
	var b bytes.Buffer
	s.greet(&b)
	for _, want := range []string{s.data.File("admin.token"), "kici login " + s.URL()} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the greeting does not say %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), s.AdminToken()) {
		t.Error("the greeting shows the token itself")
	}
}

// The greeting says what the kici command must be told, or that it needs nothing.
func TestGreetingNamesWhatToExport(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", "")
	usual := filepath.Join(home, ".local", "share", "kici")
	const local = "http://127.0.0.1:4000"
	for name, c := range map[string]struct {
		g         greeting
		want, not []string
	}{
		"as usual":       {greeting{usual, local, local}, []string{"by itself"}, []string{"export"}},
		"another port":   {greeting{usual, local, "http://127.0.0.1:4711"}, []string{"export KICI_URL=http://127.0.0.1:4711\n"}, []string{"KICI_DATA_DIR"}},
		"another folder": {greeting{"/srv/my ci", local, local}, []string{"export KICI_DATA_DIR='/srv/my ci'\n"}, []string{"KICI_URL"}},
		"behind a proxy": {
			greeting{usual, "https://ci.example.org/kici", local + "/kici"},
			[]string{"export KICI_URL=http://127.0.0.1:4000/kici\n", "kici login https://ci.example.org/kici`"},
			nil,
		},
		"on one address": {greeting{"/srv/ci", "http://192.0.2.7:4000", "http://192.0.2.7:4000"}, []string{"on this machine too"}, []string{"export"}},
	} {
		text := c.g.text()
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: it does not say %q:\n%s", name, w, text)
			}
		}
		for _, n := range c.not {
			if strings.Contains(text, n) {
				t.Errorf("%s: it says %q:\n%s", name, n, text)
			}
		}
	}
}

// A root server that is not told whose its agents are makes nothing: the start that follows is the first one and greets.
func TestRootIsRefusedBeforeAnythingIsMade(t *testing.T) {
	nobody := func(string) bool { return false }
	for name, c := range map[string]struct {
		euid   int
		o      Options
		exists func(string) bool
		want   string
		bad    bool
	}{
		"not root":      {euid: 1000, exists: nobody},
		"root":          {exists: nobody, bad: true},
		"root, a user":  {exists: func(n string) bool { return n == "kici" }, want: "kici"},
		"root, run as":  {o: Options{RunAs: "ci"}, exists: nobody, want: "ci"},
		"root, allowed": {o: Options{AllowRoot: true}, exists: nobody},
	} {
		if got, err := agentUser(c.euid, c.o, c.exists); got != c.want || err != nil != c.bad {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "data")
	if os.Geteuid() == 0 {
		if _, err := user.Lookup("kici"); err != nil {
			if s, err := NewServer(t.Context(), Options{DataDir: dir}); err == nil {
				_ = s.Close()
				t.Fatal("it starts")
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the refused start made its data directory: %v", err)
			}
		}
	}
	bad := filepath.Join(t.TempDir(), "scalers.yaml")
	if err := os.WriteFile(bad, []byte("version: 1\nscalers: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := NewServer(t.Context(), Options{DataDir: dir, ScalerConfig: bad}); err == nil {
		_ = s.Close()
		t.Fatal("it starts")
	}
	if s, _ := boot(t, Options{DataDir: dir}); !s.FirstStart() {
		t.Error("a start after a refused one does not greet")
	}
}

// A stop ends streams, says goodbye and gives the lease free (XC-150).
func TestXC150Stop(t *testing.T) {
	dir := t.TempDir()
	s, stop := boot(t, Options{DataDir: dir, Log: obs.Discard()})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/api/v1/admin/runs/stream", nil)
	req.Header.Set("Authorization", "Bearer "+s.AdminToken())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	began := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("stopping took %v", d)
	}
	st, err := store.Open(t.Context(), store.Config{Dir: dir, Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	lease, err := st.Read().LeaderLease(t.Context())
	if err != nil || lease.Holder != "" {
		t.Errorf("lease %+v, %v", lease, err)
	}
}

// DESIGN §11: start → healthy in 150 ms; here with a margin for a busy machine.
func TestStartIsQuick(t *testing.T) {
	dir := t.TempDir()
	_, stop := boot(t, Options{DataDir: dir})
	_ = stop()
	began := time.Now()
	s, _ := boot(t, Options{DataDir: dir})
	if code, _ := get(t, s.URL()+"/ready"); code != 200 {
		t.Error("not ready")
	}
	d := time.Since(began)
	t.Logf("ready after %v", d)
	if limit := 1500 * time.Millisecond; d > limit {
		t.Errorf("start took %v", d)
	}
}
