package sourcecmd

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

func add(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "add",
		Long: "Add a source: a repository on this machine, one on a forge, or any program that sends webhooks.",
		Example: `  kici source add local .
  kici source add --help`, Short: "Add a source",
	}
	cmd.AddCommand(addLocal(c), addForge(c, "github"), addForge(c, "gitea"), addForge(c, "gitlab"), addGeneric(c))
	return cmd
}

func addLocal(c *console.Console) *cobra.Command {
	s := client.NewSource{Kind: "local"}
	var secret console.SecretInput
	cmd := &cobra.Command{
		Use: "local PATH", Short: "Add a git repository on the server's machine", Args: cobra.ExactArgs(1),
		Long: `Add a git repository on the server's machine. Commits are read from git's objects, never from the work tree.
Pushes reach kici through git hooks ("kici source install-hook") or by hand ("kici source trigger").`,
		Example: `  kici source add local .
  kici source add local /srv/git/shop.git --name shop --repo acme/shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			s.Path = path
			if s.Name == "" {
				s.Name = nameOf(path)
			}
			return create(c, cmd, s, &secret)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Name, "name", "", "name of the source (default: the directory's)")
	f.StringVar(&s.Repo, "repo", "", "identifier shown on runs, such as acme/shop (default: the directory's name)")
	f.StringVar(&s.DefaultBranch, "default-branch", "", "asked from the repository when not given")
	secret.Flags(cmd, "secret", "what its hooks sign with; made when none is given")
	return cmd
}

var notName = regexp.MustCompile(`[^a-z0-9._-]+`)

// nameOf makes a source name of a path.
func nameOf(path string) string {
	name := strings.ToLower(strings.TrimSuffix(filepath.Base(path), ".git"))
	if name == "" || name == "." || name == string(filepath.Separator) {
		return "local"
	}
	return strings.Trim(notName.ReplaceAllString(name, "-"), "-._")
}

func addGeneric(c *console.Console) *cobra.Command {
	s := client.NewSource{Kind: "generic"}
	var secret console.SecretInput
	o := genericOptions{}
	cmd := &cobra.Command{
		Use: "generic NAME", Short: "Add a webhook that any sender can use", Args: cobra.ExactArgs(1),
		Long: `Add a webhook that any sender can use. Its deliveries are events of workflows with the trigger generic_webhook;
--runs limits them to the workflows that one source has registered.`,
		Example: `  kici source add generic deploys --runs shop
  kici source add generic sensor --verify bearer --event-path type --allowed-events alarm,reset`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Name = args[0]
			var err error
			if s.Options, err = o.json(); err != nil {
				return err
			}
			return create(c, cmd, s, &secret)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.RunsSource, "runs", "", "start only workflows that this source has registered")
	f.StringVar(&o.Method, "verify", "", "how senders prove themselves: hmac_sha256 (default), bearer, …")
	f.StringVar(&o.Config.HeaderName, "signature-header", "", "where the proof stands (default x-signature-256, or authorization)")
	f.StringSliceVar(&o.Config.AllowedIPs, "allowed-ips", nil, "admit only these addresses and networks")
	f.StringVar(&o.EventHeader, "event-header", "", "header with the event's name")
	f.StringVar(&o.EventPath, "event-path", "", "path in a JSON body with the event's name")
	f.StringSliceVar(&o.Events, "allowed-events", nil, "admit only these events")
	f.StringVar(&o.KeyHeader, "idempotency-header", "", "header with the delivery's id")
	f.StringVar(&o.KeyPath, "idempotency-path", "", "path in a JSON body with the delivery's id")
	secret.Flags(cmd, "secret", "what senders sign with; made when none is given")
	return cmd
}

// genericOptions are the options of a generic source in the names that the server knows.
type genericOptions struct {
	Method string `json:"verificationMethod,omitempty"`
	Config struct {
		HeaderName string   `json:"headerName,omitempty"`
		AllowedIPs []string `json:"allowedIps,omitempty"`
	} `json:"verificationConfig,omitzero"`
	EventHeader string   `json:"eventTypeHeader,omitempty"`
	EventPath   string   `json:"eventTypePath,omitempty"`
	KeyHeader   string   `json:"idempotencyKeyHeader,omitempty"`
	KeyPath     string   `json:"idempotencyKeyPath,omitempty"`
	Events      []string `json:"allowedEvents,omitempty"`
}

// json is the options as JSON.
func (o *genericOptions) json() (json.RawMessage, error) {
	return json.Marshal(o)
}

func create(c *console.Console, cmd *cobra.Command, s client.NewSource, in *console.SecretInput) error {
	if in.Given() {
		value, err := in.Read(c, "secret of "+s.Name)
		if err != nil {
			return err
		}
		s.Secret = value
	}
	cl, err := c.Writer(cmd.Context())
	if err != nil {
		return err
	}
	out, err := cl.AddSource(cmd.Context(), s)
	if err != nil {
		return err
	}
	return c.Print(out, func() error {
		if err := fields(c, out.Source); err != nil {
			return err
		}
		if out.Secret != "" && s.Kind == "generic" {
			fmt.Fprintf(c.Out, "secret  %s\n", out.Secret)
			c.Notice("senders sign with this secret; see it again with \"kici source webhook-secret %s\"", out.Name)
		}
		if s.Kind == "local" {
			if check, err := cl.CheckSource(cmd.Context(), out.Name); err == nil && !check.OK {
				c.Notice("the server cannot read it yet: %s", check.Message)
			}
			c.Notice("run its workflows on every push with \"kici source install-hook %s\", or now with \"kici source trigger %s\"", out.Name, out.Name)
		}
		for _, w := range out.Warnings {
			c.Notice("warning: %s", console.CleanLine(w))
		}
		if forges[s.Kind] != "" {
			c.Notice("let the forge tell of every push: \"kici source install-hook %s\"", out.Name)
			byHand(c, out.Source, out.Secret)
		}
		return nil
	})
}
