package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/service"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// serverFlags are the flags of `kici server`; each is also a KICI_* variable (flagVariables).
type serverFlags struct {
	Options
	role      string
	logFormat string
	logLevel  string
}

// flagVariables maps flags to the variables that set them when the flag is not given.
var flagVariables = map[string]string{
	"data-dir": "KICI_DATA_DIR", "storage-dir": "KICI_STORAGE_DIR", "database-url": "KICI_DATABASE_URL", "host": "KICI_HOST", "port": "KICI_PORT",
	"base-path": "KICI_BASE_PATH", "public-url": "KICI_PUBLIC_URL", "on-stop": "KICI_ON_STOP", "role": "KICI_ROLE",
	"log-format": "KICI_LOG_FORMAT", "log-level": "KICI_LOG_LEVEL", "scaler-config": "KICI_SCALER_CONFIG_PATH", "scaler-config-dir": "KICI_SCALER_CONFIG_DIR",
	"machine-ledger-dir": "KICI_MACHINE_LEDGER_DIR", "run-as": "KICI_RUN_AS", "allow-root": "KICI_ALLOW_ROOT", "agent-url": "KICI_ORCHESTRATOR_URL",
	"trusted-proxies": "KICI_TRUSTED_PROXIES",
}

// ServerCommand is `kici server`.
func ServerCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the orchestrator: API, dashboard, webhooks, and agents on this machine",
		Long: "Run the orchestrator. One machine needs nothing else: data is kept in files under --data-dir, and jobs run on agents\n" +
			"that it starts as processes of this machine. With --database-url it keeps its data in PostgreSQL instead.\n\n" +
			"Every flag can be set by a variable: --data-dir by KICI_DATA_DIR, and so on.",
		Example: "  kici server\n  kici server --data-dir /srv/kici --port 8080 --public-url https://ci.example.org",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := overlay(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return runServer(cmd.Context(), f, cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.DataDir, "data-dir", DefaultDataDir(), "directory for everything that is kept")
	flags.StringVar(&f.StorageDir, "storage-dir", "", "directory for logs and other files (default: in the data directory); the servers of one cluster share it")
	flags.StringVar(&f.DatabaseURL, "database-url", "", "postgres://… instead of SQLite in the data directory")
	flags.StringVar(&f.Host, "host", "127.0.0.1", "address to listen on")
	flags.IntVar(&f.Port, "port", 4000, "port to listen on; 0 picks a free one")
	flags.StringVar(&f.BasePath, "base-path", "", "path below which everything is served, such as /kici")
	flags.StringVar(&f.PublicURL, "public-url", "", "address by which people reach the server, when it is another one (a proxy)")
	flags.StringSliceVar(&f.TrustedProxies, "trusted-proxies", nil, "addresses and networks of proxies whose X-Forwarded-For is believed, divided by commas")
	flags.StringVar(&f.AgentURL, "agent-url", "", "address that agents connect to, when it is another one")
	flags.StringVar(&f.OnStop, "on-stop", OnStopKeep, "agents when the server stops: keep (they finish and reconnect) or end")
	flags.StringVar(&f.ScalerConfig, "scaler-config", "", "scalers.yaml (default: the one in the data directory, made at the first start)")
	flags.StringVar(&f.ScalerDir, "scaler-config-dir", "", "folder of further scalers.yaml fragments")
	flags.StringVar(&f.MachineLedgerDir, "machine-ledger-dir", "", "folder of the machine pools, which the servers of one machine share (default: the usual place)")
	flags.StringVar(&f.RunAs, "run-as", "", "first start as root: the user that jobs run as")
	flags.BoolVar(&f.AllowRoot, "allow-root", false, "first start as root: run jobs as root")
	flags.StringVar(&f.role, "role", "coordinator", "coordinator (worker comes later)")
	flags.StringVar(&f.logFormat, "log-format", "auto", "auto, text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// overlay sets flags that were not given from their variables (D20).
func overlay(flags *pflag.FlagSet, lookup func(string) (string, bool)) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name, mapped := flagVariables[f.Name]
		if !mapped || f.Changed {
			return
		}
		value, set := lookup(name)
		if !set || value == "" {
			return
		}
		if serr := flags.Set(f.Name, value); serr != nil {
			err = errors.Join(err, fmt.Errorf("the environment variable %s: %q is not valid for --%s", name, value, f.Name))
		}
	})
	return err
}

func runServer(ctx context.Context, f serverFlags, out io.Writer) error {
	if err := checkEnvironment(os.Environ()); err != nil {
		return err
	}
	switch f.role {
	case "coordinator":
	case "worker":
		return errors.New("--role worker is not built yet: a worker is a node without a database, and comes in a later version")
	default:
		return fmt.Errorf("--role is coordinator or worker, not %q", f.role)
	}
	log, err := obs.NewLogger(out, obs.LogOptions{Format: f.logFormat, Level: f.logLevel})
	if err != nil {
		return err
	}
	f.Log, f.Environ, f.Getenv = log, os.Environ(), os.Getenv
	f.SecretKey, f.AdminToken, f.ClusterName = os.Getenv("KICI_SECRET_KEY"), os.Getenv(access.BootstrapVariable), os.Getenv("KICI_CLUSTER_NAME")
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := NewServer(ctx, f.Options)
	if err != nil {
		if isFull(err) {
			log.Error("the disk is full: this server ends in a moment", "component", "app", "in", fullPause.String(), "err", err)
			_ = service.Sleep(ctx, fullPause) // or until it is to stop
		}
		return err
	}
	if s.FirstStart() {
		s.greet(out)
	}
	// A second signal ends the process at once.
	defer context.AfterFunc(ctx, stop)()
	defer reloadOnHangup(ctx, s)()
	defer time.AfterFunc(startedWithin, service.GiveBack).Stop()
	return s.Run(ctx)
}

// reloadOnHangup makes SIGHUP read scalers.yaml again (CF-17).
func reloadOnHangup(ctx context.Context, s *Server) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				s.ReloadScalers(ctx, false)
			}
		}
	}()
	return func() {
		signal.Stop(hangup)
		cancel()
	}
}

// startedWithin is when what only the start needed (migrations, descriptions of routes, the program's pages for them) goes back to
// the system.
const startedWithin = 2 * time.Second
