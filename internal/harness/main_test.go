package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/app"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/store"
)

// serverRole is what a process of this binary gets when it is to be a server.
type serverRole struct {
	DataDir     string
	DatabaseURL string
	Port        int
	OnStop      string
	CrashAt     int    // the commit, counted from when Armed exists, at which the process kills itself; 0 = never
	Before      bool   // just before that commit instead of just after it
	Armed       string // file
	Counted     string // file that gets the number of commits so far
	SmallDisk   bool   // the data directory is on a disk on which /ready would fail
	GapEvery    time.Duration
	GapConfirm  time.Duration
	StorageDir  string        // "" is in DataDir
	SecretKey   string        // "" is one of its own
	PublicURL   string        // "" is its own address
	Grace       time.Duration // for an agent whose link is lost; 0 is the default
	Pools       string        // folder of the machine pools; "" is the usual one
	BackoffMax  time.Duration // after failed launches, and four times its base; 0 is the default
}

const roleVariable = "HARNESS_SERVER"

// TestMain makes this binary all three programs: the tests, the server that they crash, and the agents that it starts.
func TestMain(m *testing.M) {
	if text := os.Getenv(roleVariable); text != "" && len(os.Args) == 1 {
		os.Exit(serve(text))
	}
	if len(os.Args) > 1 && (os.Args[1] == "agent" || os.Args[1] == "webhook") {
		os.Exit(app.Main(context.Background(), os.Args))
	}
	os.Exit(m.Run())
}

func serve(text string) int {
	var r serverRole
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = os.Unsetenv(roleVariable)
	log, err := obs.NewLogger(os.Stderr, obs.LogOptions{Format: "text", Level: "info"})
	if err != nil {
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := app.NewServer(ctx, app.Options{
		DataDir: r.DataDir, DatabaseURL: r.DatabaseURL, Port: r.Port, OnStop: r.OnStop, AllowRoot: os.Geteuid() == 0,
		Environ: os.Environ(), Log: log, StoreHooks: r.hook, Tune: r.tune, StorageDir: r.StorageDir, SecretKey: r.SecretKey, PublicURL: r.PublicURL,
		MachineLedgerDir: r.Pools,
	})
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (r serverRole) tune(t *app.Tuning) {
	if r.SmallDisk {
		t.DiskFail, t.DiskWarn, t.Scaler.MinFreeDisk = 1, 1, 0
	}
	if r.Grace > 0 {
		t.Dispatch.RecoveryGrace = r.Grace
	}
	if r.BackoffMax > 0 {
		t.Scaler.BackoffBase, t.Scaler.BackoffMax = r.BackoffMax/4, r.BackoffMax
	}
	t.Ingress.GapEvery, t.Ingress.GapConfirm = r.GapEvery, r.GapConfirm
}

// hook counts commits once armed and dies at the chosen one: no deferred function, no flush, nothing.
func (r serverRole) hook(c *store.Config) {
	var n atomic.Int64
	step := func(before bool) func() {
		return func() {
			if before != r.Before {
				return
			}
			if _, err := os.Stat(r.Armed); err != nil {
				return
			}
			at := n.Add(1)
			_ = os.WriteFile(r.Counted, []byte(strconv.FormatInt(at, 10)), 0o600)
			if int(at) == r.CrashAt {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	c.BeforeCommit, c.AfterCommit = step(true), step(false)
}
