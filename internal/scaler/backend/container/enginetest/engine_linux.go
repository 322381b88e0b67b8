package enginetest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// Engine is a running engine.
type Engine struct {
	Name   string // docker or podman
	Socket string
	TCP    string // the same API at an address, for what looks like an engine elsewhere; '' where it has none
	API    *client.Client

	cmd   *exec.Cmd
	dir   string
	exit  chan error
	extra []string // further arguments of dockerd
	apart bool     // it has a network namespace of its own
}

var engines = struct {
	mu    sync.Mutex
	known map[string]*Engine
}{known: map[string]*Engine{}}

// Each runs a test against both engines.
func Each(t *testing.T, run func(t *testing.T, e *Engine)) {
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) { run(t, Get(t, name)) })
	}
}

// Get starts an engine, once for the whole binary. Where it cannot be, the test is skipped, or fails if KICI_TEST_REQUIRE names it.
func Get(t *testing.T, name string) *Engine {
	t.Helper()
	require(t, name)
	e, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Open is Get for what is no test: it runs in Main, too.
func Open(name string) (*Engine, error) {
	engines.mu.Lock()
	defer engines.mu.Unlock()
	if e := engines.known[name]; e != nil {
		return e, nil
	}
	e, err := start(&Engine{Name: name, dir: filepath.Join(os.Getenv(dirVariable), name)})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	engines.known[name] = e
	return e, nil
}

// Place is where an engine runs.
type Place int

// Apart is a network namespace of its own.
const Apart Place = 1

// OnSmallDisk starts an engine whose images and containers are on a file system of their own of this size ("64m"), until the test ends.
// It has no default network, and takes Get's away from the Docker there unless it has a network namespace of its own (Apart); then it reaches
// no registry.
func OnSmallDisk(t *testing.T, name, size string, where ...Place) *Engine {
	t.Helper()
	e := private(t, name)
	e.apart = slices.Contains(where, Apart)
	if err := os.MkdirAll(e.Root(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", e.Root(), "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("SKIPPED: cannot mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(e.Root(), syscall.MNT_DETACH) })
	e.begin(t)
	return e
}

// WithoutLiveRestore starts a Docker whose containers end with it, as it comes from the distributions, until the test ends. Its containers
// reach nobody.
func WithoutLiveRestore(t *testing.T) *Engine {
	t.Helper()
	e := private(t, "docker")
	e.extra = append(e.extra, "--live-restore=false")
	e.begin(t)
	return e
}

// private is an engine of one test, which does not run yet. It shares the bridge docker0 with Get's: to have none, Docker would remove it.
func private(t *testing.T, name string) *Engine {
	t.Helper()
	require(t, name)
	dir, err := os.MkdirTemp(os.Getenv(dirVariable), "own-")
	if err != nil {
		t.Fatal(err)
	}
	return &Engine{Name: name, dir: dir, extra: []string{"--iptables=false"}}
}

func (e *Engine) begin(t *testing.T) {
	t.Helper()
	if _, err := start(e); err != nil {
		t.Fatalf("start %s: %v", e.Name, err)
	}
	t.Cleanup(func() {
		if err := e.Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = e.API.Close()
	})
}

// Root is the folder in which the engine has its images and containers.
func (e *Engine) Root() string {
	if e.Name == "podman" {
		return filepath.Join(e.dir, "root")
	}
	return filepath.Join(e.dir, "data")
}

// require skips the test where there can be no such engine, or fails it if KICI_TEST_REQUIRE names it.
func require(t *testing.T, name string) {
	t.Helper()
	why := ""
	switch program := programs[name]; {
	case os.Getenv(roleVariable) != roleTest:
		why = "engines run as root only"
	default:
		if _, err := exec.LookPath(program); err != nil {
			why = program + " is not installed: see scripts/setup.sh"
		}
	}
	if why != "" {
		if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), name) {
			t.Fatalf("%s, and KICI_TEST_REQUIRE names %s", why, name)
		}
		t.Skip(why)
	}
}

var programs = map[string]string{"docker": "dockerd", "podman": "podman"}

func start(e *Engine) (*Engine, error) {
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return nil, err
	}
	e.Socket = filepath.Join(e.dir, e.Name+".sock")
	var err error
	if e.API, err = client.New(client.WithHost("unix://" + e.Socket)); err != nil {
		return nil, err
	}
	return e, e.Start()
}

// Start starts an engine that was stopped.
func (e *Engine) Start() error {
	prepare := e.docker
	if e.Name == "podman" {
		prepare = e.podman
	}
	cmd, err := prepare()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(e.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = e.dir // conmon leaves files where it stands
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if e.apart {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	e.cmd, e.exit = cmd, make(chan error, 1)
	go func() { e.exit <- cmd.Wait() }()
	return e.await()
}

// startTime is how long an engine may take until it answers.
const startTime = 60 * time.Second

func (e *Engine) await() error {
	for deadline := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := e.API.Ping(ctx, client.PingOptions{})
		cancel()
		if err == nil {
			return nil
		}
		select {
		case exit := <-e.exit:
			return fmt.Errorf("it ended (%w):\n%s", exit, e.Log())
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it does not answer (%w):\n%s", err, e.Log())
		}
	}
}

func (e *Engine) logFile() string { return filepath.Join(e.dir, "log") }

// Log is the end of what the engine said.
func (e *Engine) Log() string {
	data, _ := os.ReadFile(e.logFile())
	return string(data[max(0, len(data)-4000):])
}

// Stop ends the engine and returns when it has.
func (e *Engine) Stop(s syscall.Signal) error {
	if err := e.cmd.Process.Signal(s); err != nil {
		return err
	}
	select {
	case exit := <-e.exit:
		_ = exit // whatever it says: it has ended
		return nil
	case <-time.After(startTime):
		return fmt.Errorf("%s does not end", e.Name)
	}
}

func stopEngines() {
	engines.mu.Lock()
	defer engines.mu.Unlock()
	for _, e := range engines.known {
		if err := e.Stop(syscall.SIGTERM); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		_ = e.API.Close()
	}
}

func (e *Engine) docker() (*exec.Cmd, error) {
	config := filepath.Join(e.dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o644); err != nil {
		return nil, err
	}
	if e.TCP == "" {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0") // a free port of our own network namespace
		if err != nil {
			return nil, err
		}
		e.TCP = "tcp://" + l.Addr().String()
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return exec.CommandContext(context.Background(), "dockerd", append([]string{
		"--config-file", config, "-H", "unix://" + e.Socket, "-H", e.TCP, "--tls=false", "--data-root", e.Root(), "--exec-root", filepath.Join(e.dir, "exec"),
		"-p", filepath.Join(e.dir, "pid"), "--storage-driver", "overlay2", "--exec-opt", "native.cgroupdriver=cgroupfs", "--live-restore",
	}, e.extra...)...), nil
}

func (e *Engine) podman() (*exec.Cmd, error) {
	at := func(name string) string { return filepath.Join(e.dir, name) }
	files := map[string]string{
		"containers.conf": fmt.Sprintf("[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nruntime = \"runc\"\ntmp_dir = %q\n"+
			"[containers]\ndefault_ulimits = [\"nofile=4096:4096\",\"nproc=4096:4096\"]\n[network]\nnetwork_backend = \"netavark\"\nnetwork_config_dir = %q\n", at("tmp"), at("networks")),
		"storage.conf":    fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", e.Root(), at("runroot")),
		"registries.conf": "unqualified-search-registries = [\"docker.io\"]\n[[registry]]\nlocation = \"127.0.0.1:5000\"\ninsecure = true\n",
		"policy.json":     `{"default":[{"type":"insecureAcceptAnything"}]}`,
	}
	for name, text := range files {
		if err := os.WriteFile(at(name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(context.Background(), "podman", "system", "service", "--time=0", "unix://"+e.Socket)
	cmd.Env = append(os.Environ(),
		"CONTAINERS_CONF="+at("containers.conf"), "CONTAINERS_STORAGE_CONF="+at("storage.conf"), "CONTAINERS_REGISTRIES_CONF="+at("registries.conf"))
	return cmd, nil
}
