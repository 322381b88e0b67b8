package app

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/agent/sandbox"
	"github.com/kici-go/kici/internal/cli"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/scalercmd"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/scaler"
	"github.com/kici-go/kici/internal/wire"
)

// Main is the program: args with its own name first, the exit code back.
func Main(ctx context.Context, args []string) int {
	switch { // before everything else: they start with every job, or as another user
	case len(args) == 2 && args[1] == sandbox.Command:
		return sandbox.Main()
	case len(args) == 4 && args[1] == wire.SandboxCheck:
		return sandbox.CheckMain(args[2], args[3], os.Stdout, os.Stderr)
	}
	var self []string
	if exe, err := os.Executable(); err == nil {
		self = []string{exe}
	}
	return cli.Execute(ctx, args, cli.Injected{
		Version: obs.BuildVersion(),
		Self:    self,
		Commands: func(c *console.Console) []*cobra.Command {
			return []*cobra.Command{ServerCommand(), DemoCommand(c)}
		},
		Checks:  hostChecks,
		Offline: offline,
		Scalers: scalercmd.File{Check: validateScalers, Schema: func() []byte { return scaler.Schema(backendKinds()) }, Reap: reapOrphans},
		Agent:   func(*console.Console) *cobra.Command { return AgentCommand() },
	})
}

// offline opens a database for one command. What is worth a warning there is the error itself, so the log is left out.
func offline(ctx context.Context, databaseURL string) (url, token string, end func() error, err error) {
	log, err := obs.NewLogger(os.Stderr, obs.LogOptions{Format: "text", Level: "error"})
	if err != nil {
		return "", "", nil, err
	}
	o, err := OpenOffline(ctx, Options{
		DataDir: os.Getenv("KICI_DATA_DIR"), StorageDir: os.Getenv("KICI_STORAGE_DIR"), DatabaseURL: databaseURL, SecretKey: os.Getenv("KICI_SECRET_KEY"),
		Getenv: os.Getenv, Log: log,
	})
	if err != nil {
		return "", "", nil, err
	}
	return o.URL, o.Token, o.Close, nil
}
