package app

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/kici-go/kici/internal/agent"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/wire"
	"github.com/spf13/cobra"
)

// agentFlags are the flags of `kici agent`; they go over the environment.
type agentFlags struct {
	url, tokenFile, id, workDir string
	labels                      []string
	logFormat, logLevel         string
}

// AgentCommand is `kici agent`: an agent that somebody starts by hand, or that a scaler starts by its environment alone.
func AgentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent, list agents, and manage the tokens of static ones",
		Long: "Run an agent on this machine for a server elsewhere. Make a token on the server first:\n\n" +
			"  kici agent token create --labels linux,gpu > agent.token\n" +
			"  kici agent --url https://ci.example.org --token-file agent.token\n\n" +
			"Everything can be set by the environment too (KICI_ORCHESTRATOR_URL, KICI_AGENT_TOKEN_FILE, KICI_LABELS, …).",
		Example: "  kici agent --url https://ci.example.org --token-file agent.token\n  kici agent list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAgent(cmd.Context(), f, os.Environ(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "address of the server")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the agent's token")
	flags.StringVar(&f.id, "id", "", "the agent's name (default: host name and a random part)")
	flags.StringSliceVar(&f.labels, "labels", nil, "labels, divided by commas (default: those of the token)")
	flags.StringVar(&f.workDir, "work-dir", "", "folder for workspaces")
	flags.StringVar(&f.logFormat, "log-format", "", "auto, text or json")
	flags.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error")
	return cmd
}

func runAgent(ctx context.Context, f agentFlags, environ []string, out io.Writer) error {
	c, err := agent.ConfigFromEnv(environ, setting.Variables()...)
	if err != nil {
		return err
	}
	c.Log, err = obs.NewLogger(out, obs.LogOptions{
		Format: or(f.logFormat, os.Getenv("KICI_LOG_FORMAT")), Level: or(f.logLevel, os.Getenv("KICI_LOG_LEVEL")),
	})
	if err != nil {
		return err
	}
	c.URL, c.TokenFile, c.AgentID, c.WorkDir = or(f.url, c.URL), or(f.tokenFile, c.TokenFile), or(f.id, c.AgentID), or(f.workDir, c.WorkDir)
	if len(f.labels) > 0 {
		c.Labels = f.labels
	}
	c.Version = obs.BuildVersion()
	err = agent.Main(ctx, c)
	if errors.Is(err, agent.ErrNoTokenCame) {
		return &console.ExitError{Code: wire.ExitNoToken, Err: err}
	}
	return err
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
