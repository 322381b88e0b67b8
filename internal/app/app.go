// Package app is the composition root: it builds a server from its rooms, starts them in order and stops them in reverse,
// and it makes the commands that need a store or an agent (D24). Decisions live in the rooms; here is only which room
// gets what.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/blob"
	"github.com/kici-go/kici/internal/check"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/dispatch"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/fleet"
	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/periodic"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/scaler"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/schedule"
	"github.com/kici-go/kici/internal/secret"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
)

// What --on-stop says about agents that run when the server stops.
const (
	OnStopKeep = "keep" // they go on and reconnect to the next start
	OnStopEnd  = "end"  // they are ended
)

// Options say what server to build. The zero value of a field is its default.
type Options struct {
	DataDir     string // "" is DefaultDataDir
	StorageDir  string // logs and other files; "" is a folder of DataDir. The servers of one cluster share it
	DatabaseURL string // postgres://…; "" is SQLite in the data directory
	Host        string // "" is loopback
	Port        int    // 0 picks a free one
	BasePath    string // "" or /kici
	PublicURL   string // how people reach it, with the base path; "" is made from host and port
	OnStop      string // "" is keep

	TrustedProxies []string // addresses and networks whose X-Forwarded-For is believed (ING-11)

	ScalerConfig string // "" is <data-dir>/scalers.yaml, made at the first start (D15)
	// MachineLedgerDir is the folder of the machine pools of this machine, "" for the usual places.
	MachineLedgerDir string

	ScalerDir   string              // folder of fragments of scalers.yaml, "" for none
	RunAs       string              // for that first scalers.yaml (D14)
	AllowRoot   bool                // for that first scalers.yaml (D14)
	AgentURL    string              // where agents connect; "" is this server on this machine (AG-2)
	Environ     []string            // of this process, for agents; nil is none
	Executable  string              // the agent's program; "" is this one
	SecretKey   string              // KICI_SECRET_KEY
	AdminToken  string              // KICI_BOOTSTRAP_ADMIN_TOKEN
	ClusterName string              // KICI_CLUSTER_NAME, for the first start (CLU-3); "" makes one up
	Tune        func(*Tuning)       // changes defaults, for tests and the demo; may be nil
	Getenv      func(string) string // for the variables of rooms (KICI_QUEUE_TIMEOUT_MS and so on); nil reads none
	Log         *slog.Logger        // nil discards
	Now         func() time.Time    // nil is time.Now
	NewID       func() string       // nil is ci.NewID
	StoreHooks  func(*store.Config) // of the crash harness and the simulation; may be nil
	Outside     Outside             // of the simulation

	asIs bool // Offline: the database is not migrated
}

// Server is a built server. Run it once.
type Server struct {
	o        Options
	tuning   Tuning
	env      service.Env
	log      *slog.Logger
	data     *cluster.DataDir
	listener net.Listener
	created  bool // the first admin token was made by this start

	store    *store.Store
	cluster  cluster.Identity
	blobs    *blob.Store
	access   *access.Service
	settings *setting.Service
	periodic *periodic.Service
	secrets  *secret.Service
	instance *cluster.Instance
	leader   *cluster.Leader
	runs     *run.Service
	ingress  *ingress.Service
	mirrors  *git.Mirrors
	events   *event.Service
	checks   *check.Service
	dispatch *dispatch.Dispatcher
	fleet    *fleet.Fleet
	scalers  *scaler.Config

	scalerFile, scalerPrint string // scalers.yaml, and its fingerprint when it was read
	node                    *scaler.Node
	logs                    *logs.Store
	metrics                 *obs.Metrics
	http                    *http.Server
	agentListener           net.Listener  // nil: there is no socket
	agentSocket             string        // its path
	leaks                   backend.Leaks // of agents

	registrations *registration.Service
	schedules     *schedule.Service

	closers []closer // in the order in which they were opened
	started chan struct{}
	state   readiness
	disk    diskState

	mirrorsDue *service.Wake // they are to be tidied

	backlogged bool                            // the queue was long when it was last looked at; the gauges' alone
	streams    atomic.Pointer[context.Context] // ends when requests in progress must
}

type closer struct {
	name  string
	close func() error
}

// blobsFolder is the folder of the data directory with logs and other files.
const blobsFolder = "blobs"

// NewServer opens and checks everything that a server needs, and listens, but serves nothing yet. What goes wrong here is
// the user's to mend, so every error says how.
func NewServer(ctx context.Context, o Options) (*Server, error) {
	s := &Server{started: make(chan struct{}), mirrorsDue: service.NewWake()}
	if err := s.setDefaults(o); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{s.checkRoot, s.openData, s.listen, s.listenAgents, s.openConfig, s.makeRoom, s.openStore, s.openAccess, s.openSettings, s.openRooms, s.openNode, s.openSurfaces} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(s.diskHint(err), s.close())
		}
	}
	return s, nil
}

func (s *Server) setDefaults(o Options) error {
	if o.DataDir == "" {
		o.DataDir = DefaultDataDir()
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.OnStop == "" {
		o.OnStop = OnStopKeep
	}
	if o.OnStop != OnStopKeep && o.OnStop != OnStopEnd {
		return fmt.Errorf("--on-stop is %s or %s, not %q", OnStopKeep, OnStopEnd, o.OnStop)
	}
	if o.Log == nil {
		o.Log = obs.Discard()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = ci.NewID
	}
	var err error
	if o.BasePath, err = cleanBasePath(o.BasePath); err != nil {
		return err
	}
	s.tuning = defaultTuning()
	if o.Tune != nil {
		o.Tune(&s.tuning)
	}
	if err := s.tuning.overlay(o.Getenv); err != nil {
		return err
	}
	if s.tuning.Ingress.TrustedProxies, err = prefixes(o.TrustedProxies); err != nil {
		return err
	}
	s.o, s.log, s.env = o, o.Log, service.Env{Now: o.Now, NewID: o.NewID, Rand: o.Outside.Rand}
	s.metrics = obs.NewMetrics()
	return nil
}

// prefixes reads addresses and networks.
func prefixes(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		text = strings.TrimSpace(text)
		p, err := netip.ParsePrefix(text)
		if addr, aerr := netip.ParseAddr(text); err != nil && aerr == nil {
			p, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxies: %q is neither an address nor a network such as 10.0.0.0/8", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// cleanBasePath returns "" or a path that begins with a slash and does not end in one.
func cleanBasePath(p string) (string, error) {
	p = strings.Trim(p, "/")
	if p == "" {
		return "", nil
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
			return "", fmt.Errorf("base path %q: use letters, digits, '-', '_' and '.' between slashes", p)
		}
	}
	return "/" + p, nil
}

// opened remembers how to undo a step.
func (s *Server) opened(name string, c func() error) { s.closers = append(s.closers, closer{name, c}) }

// close undoes all steps, last first.
func (s *Server) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		if err := s.closers[i].close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", s.closers[i].name, err))
		}
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *Server) openData(context.Context) (err error) {
	if s.data, err = cluster.OpenDataDir(s.o.DataDir); err != nil {
		return err
	}
	s.opened("data directory", s.data.Close)
	return nil
}

func (s *Server) openStore(ctx context.Context) (err error) {
	c := store.Config{URL: s.o.DatabaseURL, Dir: s.data.Path(), Now: s.o.Now, Log: s.log, AsIs: s.o.asIs}
	if s.o.StoreHooks != nil {
		s.o.StoreHooks(&c)
	}
	if s.store, err = store.Open(ctx, c); err != nil {
		return err
	}
	s.opened("store", s.store.Close)
	s.metrics.CounterOf("pg_listen_reconnects_total", "Times that the connection of notifications was lost.", func() int64 { return s.store.Stats().Reconnects })
	return s.identify(ctx)
}

// identify finds out which cluster this is, and that the files here are its own (XC-109).
func (s *Server) identify(ctx context.Context) (err error) {
	if s.cluster, err = cluster.EnsureIdentity(ctx, s.store, s.o.ClusterName); err != nil {
		return err
	}
	if s.o.ClusterName != "" && s.o.ClusterName != s.cluster.Name {
		s.log.Warn("the cluster has a name already; KICI_CLUSTER_NAME is for the first start only", "component", "app", "cluster", s.cluster.Name)
	}
	files := s.o.StorageDir
	if files == "" {
		files = s.data.File(blobsFolder)
	}
	if s.blobs, err = blob.Open(files); err != nil {
		return err
	}
	s.opened("blob store", s.blobs.Close)
	err = cluster.ClaimStorage(ctx, s.blobs, s.cluster)
	if errors.Is(err, cluster.ErrForeign) {
		return fmt.Errorf("%w; name the data directory of this database, or, to give it these files, remove %s", err, filepath.Join(files, cluster.Sentinel))
	}
	return err
}

// openAccess opens the secrets, makes the first token, and registers this server.
func (s *Server) openAccess(ctx context.Context) error {
	err := s.openDoors()
	if err != nil {
		return err
	}
	s.metrics.CounterOf("access_log_write_failures_total", "Audit rows that were lost because they could not be written.", s.access.AuditLost)
	if s.created, err = s.access.Bootstrap(ctx, s.data.Path(), s.o.AdminToken); err != nil {
		return err
	}
	if err := s.secrets.Verify(ctx); err != nil {
		return err
	}
	if err := s.instance.Start(ctx); err != nil {
		return fmt.Errorf("register this server: %w", err)
	}
	return nil
}

// openDoors makes what knows secrets, people and this instance, and writes nothing.
func (s *Server) openDoors() error {
	keys, err := secret.LoadKeyring(s.data.Path(), s.o.SecretKey)
	if err != nil {
		return err
	}
	s.secrets = secret.New(s.store, keys)
	s.access = access.New(s.store, s.env, s.log)
	s.instance = cluster.NewInstance(s.store, cluster.Info{
		InstanceID: s.data.InstanceID(), Name: hostName(), Version: obs.BuildVersion(), URL: s.URL(),
	}, s.log)
	s.leader = cluster.NewLeader(s.store, s.data.InstanceID(), s.env, s.log)
	return nil
}

// openRooms builds the services.
func (s *Server) openRooms(context.Context) error {
	s.logs = logs.New(s.blobs, s.store, s.metrics, s.log, logs.Config{Now: s.o.Now})
	s.opened("logs", s.logs.Close)
	s.tuning.Run.ServerURL = s.URL()
	s.runs = run.NewService(s.store, s.tuning.Run, s.env, s.log)
	s.runs.Observe(s.runMetrics())
	s.runs.Limit(s.runLimits)
	repos := git.NewRepos(git.ReposOptions{})
	s.opened("git", func() error { repos.Close(); return nil })
	factories := sourceFactories(repos)
	s.openForges(repos, factories)
	maps.Copy(factories, s.o.Outside.Sources)
	s.openRegistry()
	c := s.settings.Cluster()
	s.tuning.Ingress.Locks = ingress.CacheBounds{Entries: int(c.LockCacheMax), Bytes: c.LockCacheMaxBytes, For: c.LockCacheTTL}
	s.ingress = ingress.New(ingress.Deps{
		Store: s.store, InstanceID: s.data.InstanceID(), Factories: factories, Secrets: ingressSecrets{s.secrets},
		Runs: ingressRuns{s.runs}, Events: ingressEvents{s}, Registrations: s.registrations, Globals: s.globals, Limits: s.intakeLimits, BaseURL: s.URL,
		Settings: s.tuning.Ingress, Env: s.env, Log: s.log, Metrics: s.metrics,
	})
	s.opened("sources", func() error { s.ingress.Close(); return nil })
	s.openEvents()
	s.runs.Listen(s.listeners())
	s.checks = check.New(check.Deps{Store: s.store, Sources: s.ingress, BaseURL: s.URL, Env: s.env, Log: s.log, Metrics: s.metrics})
	s.dispatch = dispatch.New(dispatch.Deps{
		Store: s.store, Leader: s.leader, Runs: jobLives{s.runs, s.metrics}, InstanceID: s.data.InstanceID(), Settings: s.tuning.Dispatch, Limits: s.dispatchLimits,
		Env: s.env, Log: s.log,
	})
	s.tuning.Fleet.AckFor = s.ackTimeout
	if err := os.RemoveAll(s.data.File(archivesFolder)); err != nil { // of a process that was killed
		return err
	}
	s.fleet = fleet.New(fleet.Deps{
		Store: s.store, InstanceID: s.data.InstanceID(), Reports: agentReports(s.runs), Losses: s.runs, Logs: agentLogs{s.logs},
		Contexts: s.runs, Secrets: s.secrets, Clones: agentClones{s.ingress}, Archive: s.archive, Events: stepEvents{s.events}, Jobs: stepJobs{s.runs}, Metrics: s.metrics, Env: s.env, Log: s.log,
		Settings: s.tuning.Fleet,
	})
	s.openPeriodic()
	s.instance.Report(func() (int64, int64) { return s.settings.Version(), s.registrations.Version() })
	return nil
}

// openSurfaces builds what listens.
func (s *Server) openSurfaces(context.Context) error {
	steps := read.NewStepLogs(s.logs)
	reads := read.New(s.store, read.Config{Now: s.o.Now, BaseURL: s.URL, Logs: steps})
	d := s.apiDeps(reads)
	d.Checks = s.selfChecks(reads)
	s.http = s.newServer(s.routes(surfaces{agents: s.fleet.Handler(), webhooks: s.ingress.Handler(), api: api.New(d), web: s.dashboard(reads, steps)}))
	return nil
}

func (s *Server) apiDeps(reads *read.Reads) api.Deps {
	return api.Deps{
		Reads: reads, Auth: s.access, Tokens: s.access, AgentTokens: s.access, Runs: s.runs, Start: s.ingress,
		Sources: s.ingress, Origins: s.ingress, Secrets: s.secrets, Events: s.events, Registrations: s.registrations, Registrar: s.ingress, Settings: s.settings, Orgs: s.access,
		Cluster: cluster.NewDirectory(s.store, s.data.InstanceID()), Jobs: s.periodic, Node: s, Hub: s.store, BaseURL: s.URL,
		Version: obs.BuildVersion(), Env: s.env, Log: s.log,
	}
}

func (s *Server) listen(ctx context.Context) error {
	addr := net.JoinHostPort(s.o.Host, strconv.Itoa(s.o.Port))
	open := s.o.Outside.Listen
	if open == nil {
		open = func(ctx context.Context) (net.Listener, error) { return new(net.ListenConfig).Listen(ctx, "tcp", addr) }
	}
	l, err := open(ctx)
	if err != nil {
		return listenError(addr, err)
	}
	s.listener = l
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && !strings.HasPrefix(s.o.PublicURL, "https://") {
		s.log.Warn("listening beyond this machine without TLS: tokens can be read on the way; put a proxy with TLS in front and name it with --public-url",
			"component", "app", "address", a.String())
	}
	s.opened("listener", func() error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

// URL is how people reach this server, without a trailing slash.
func (s *Server) URL() string {
	if s.o.PublicURL != "" {
		return strings.TrimRight(s.o.PublicURL, "/")
	}
	return "http://" + s.localAddress() + s.o.BasePath
}

// localAddress is an address of the listener that can be dialled from this machine.
func (s *Server) localAddress() string {
	addr := s.listener.Addr().(*net.TCPAddr)
	host := s.o.Host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// agentURL is where agents of this node connect (AG-2).
func (s *Server) agentURL() string {
	if s.o.AgentURL != "" {
		return s.o.AgentURL
	}
	return "ws://" + s.localAddress() + s.o.BasePath + "/ws"
}

// DataDir is the directory with all that this server keeps.
func (s *Server) DataDir() string { return s.data.Path() }

// AdminToken is the token in <data-dir>/admin.token, "" when there is none any more.
func (s *Server) AdminToken() string {
	token, err := access.ReadTokenFile(s.data.File(access.TokenFile))
	if err != nil {
		return ""
	}
	return token
}

// FirstStart reports whether this start made the admin token.
func (s *Server) FirstStart() bool { return s.created }

// Started is closed when the server answers and all its parts run.
func (s *Server) Started() <-chan struct{} { return s.started }

// Ready reports whether the server takes work in now; /ready asks the database as well.
func (s *Server) Ready() bool { return s.state.get() == "" }

// Close gives up a server that was never run.
func (s *Server) Close() error { return s.close() }

var _ io.Closer = (*Server)(nil)
