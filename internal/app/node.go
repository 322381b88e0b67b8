package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/scaler"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/baremetal"
	"github.com/kici-go/kici/internal/scaler/backend/container"
	"github.com/kici-go/kici/internal/scaler/machinepool"
	"github.com/kici-go/kici/internal/service"
)

// scalerFile is the name of a first start's scalers.yaml in the data directory.
const scalerFile = "scalers.yaml"

// backendKinds are the backends: a new one is one line here.
func backendKinds() []backend.Kind { return []backend.Kind{baremetal.Kind(), container.Kind()} }

// kinds are the backends of this server.
func (s *Server) kinds() []backend.Kind {
	if s.o.Outside.Kinds != nil {
		return s.o.Outside.Kinds
	}
	return backendKinds()
}

// checkRoot refuses a first start as root that does not say whose the agents are (D14). It comes before anything is made, so that the
// start that follows is the first one still.
func (s *Server) checkRoot(context.Context) error {
	if s.o.ScalerConfig != "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(s.o.DataDir, scalerFile)); !errors.Is(err, os.ErrNotExist) {
		return nil // there, or a problem that reading it will name
	}
	runAs, err := agentUser(os.Geteuid(), s.o, func(name string) bool { _, err := user.Lookup(name); return err == nil })
	s.o.RunAs = runAs
	return err
}

// agentUser is the user of the agents in a first scalers.yaml, "" for the server's own.
func agentUser(euid int, o Options, exists func(name string) bool) (string, error) {
	const usual = "kici"
	switch {
	case o.RunAs != "" || o.AllowRoot || euid != 0:
		return o.RunAs, nil
	case exists(usual):
		return usual, nil
	}
	return "", errors.New("this server runs as root, and its agents should not: start it once with --run-as USER " +
		"(a user for jobs, such as kici), or with --allow-root to run jobs as root")
}

// openConfig reads scalers.yaml, and writes it at the first start (D15). What is wrong there is known before the store and the
// first token are made.
func (s *Server) openConfig(context.Context) error {
	path := s.o.ScalerConfig
	if path == "" {
		path = s.data.File(scalerFile)
		created, err := scaler.WriteDefault(path, scaler.DefaultOptions{
			CPUs: runtime.NumCPU(), Labels: platformLabels(), RunAs: s.o.RunAs, AllowRoot: s.o.AllowRoot,
		})
		if err != nil {
			return err
		}
		if created {
			s.log.Info("wrote a first scaler configuration", "component", "app", "file", path)
		}
	}
	s.scalerFile, s.scalerPrint = path, scaler.Fingerprint(path, s.o.ScalerDir)
	config, problems := s.loadScalers()
	s.warnScalers(problems)
	if err := scaler.Errors(problems); err != nil {
		return fmt.Errorf("the scaler configuration is not valid:\n%w", err)
	}
	s.scalers = config
	return nil
}

// openNode builds this machine's node.
func (s *Server) openNode(context.Context) error {
	binary, err := s.executable()
	if err != nil {
		return err
	}
	s.node, err = scaler.New(scaler.Deps{
		Store: s.store, Config: s.scalers, Load: s.loadScalers, Kinds: s.kinds(),
		Host: backend.Host{
			NodeID: s.data.InstanceID(), Cluster: s.cluster.Name, Dir: s.data.Path(), Binary: binary, Environ: s.o.Environ, Log: s.log, Now: s.o.Now,
			AgentSocket: s.agentSocket, Leaks: &s.leaks,
		},
		RegistryLogin: s.registryLogin, FreeDisk: service.FreeDisk,
		Pools: machinepool.New(machinepool.Options{
			Dirs: machinepool.Directories(s.o.MachineLedgerDir, os.Getenv), Instance: s.data.InstanceID(), Boot: service.BootID(), Now: s.env.Now, Log: s.log,
		}),
		URL: s.agentURL, MintToken: access.NewAgentToken, Settings: s.tuning.Scaler, Limits: s.launchLimits, Env: s.env, Log: s.log, Metrics: s.metrics.Registry,
	})
	if err != nil {
		return err
	}
	s.opened("scalers", s.node.Close)
	return nil
}

// registryLogin is what a job gives for the registry of its image.
func (s *Server) registryLogin(ctx context.Context, jobID string) (login scaler.Login, err error) {
	login.Username, login.Password, err = s.runs.RegistryLogin(ctx, jobID, s.secrets.Resolve)
	return login, err
}

// platformLabels is what jobs ask this machine by: the operating system in common words.
func platformLabels() []string {
	if runtime.GOOS == "darwin" {
		return []string{"macos"}
	}
	return []string{runtime.GOOS}
}

// executable is this program, which is its own agent (D15). A file that was replaced while it runs is named as it was.
func (s *Server) executable() (string, error) {
	if s.o.Executable != "" {
		return s.o.Executable, nil
	}
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.EvalSymlinks(path)
}
