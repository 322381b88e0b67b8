package sourcecmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

func rotateSecret(c *console.Console) *cobra.Command {
	var install bool
	cmd := &cobra.Command{
		Use: "rotate-secret SOURCE", Short: "Make a new webhook secret; the old one is accepted for a week", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		Long: `Make a new webhook secret and print it. The old one is accepted for seven days, or until "kici source drop-old-secret", so that
senders can be changed without losing a delivery. --install gives a forge the new one at once.`,
		Example: `  kici source rotate-secret shop --install
  kici source drop-old-secret shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.RotateSourceSecret(cmd.Context(), args[0], install)
			if err != nil {
				return err
			}
			err = c.Print(out, func() error {
				_, err := fmt.Fprintln(c.Out, console.CleanLine(out.Secret))
				return err
			})
			if err != nil {
				return err
			}
			if out.InstallError != "" {
				return &console.ExitError{Code: console.ExitNotClean, Err: fmt.Errorf("the secret is new, but the forge does not have it: %s", out.InstallError)}
			}
			if out.Installed {
				c.Notice("the forge signs with it now; end the old one with \"kici source drop-old-secret %s\"", args[0])
			} else {
				c.Notice("put it where deliveries to %s are signed; the old one is accepted until %s", out.WebhookURL, console.At(&out.OldUntil))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&install, "install", false, "also tell the forge")
	return cmd
}

func dropOldSecret(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:     "drop-old-secret SOURCE",
		Long:    "Stop accepting the webhook secret that was replaced last, before its time is over.",
		Example: "  kici source drop-old-secret shop", Short: "Accept the former webhook secret no longer", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if err := cl.DropOldSourceSecret(cmd.Context(), args[0]); err != nil {
				return err
			}
			c.Notice("%s accepts its present webhook secret only", args[0])
			return nil
		},
	}
}

func setToken(c *console.Console) *cobra.Command {
	return setCredential(c, credential{
		use: "set-token", what: "token", short: "Give a source on a forge another token", example: "  kici source set-token shop --from-file token.txt",
		set: (*client.Client).SetSourceToken,
	})
}

func setSSHKey(c *console.Console) *cobra.Command {
	return setCredential(c, credential{
		use: "set-ssh-key", what: "private key", short: "Give a source on a forge another private key for its clones",
		example: "  kici source set-ssh-key shop --from-file deploy_key", set: (*client.Client).SetSourceSSHKey,
	})
}

// credential is a verb that replaces one.
type credential struct {
	use, what, short, example string

	set func(c *client.Client, ctx context.Context, name, value string) error
}

func setCredential(c *console.Console, v credential) *cobra.Command {
	var in console.SecretInput
	cmd := &cobra.Command{
		Use:  v.use + " SOURCE",
		Long: "The value comes from a prompt, a pipe, a file or a variable, and is never shown again.", Short: v.short, Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(), Example: v.example,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			value, err := in.Read(c, v.what+" of "+args[0])
			if err != nil {
				return err
			}
			if err := v.set(cl, cmd.Context(), args[0], value); err != nil {
				return err
			}
			c.Notice("%s has another %s; try it with \"kici source check %s\"", args[0], v.what, args[0])
			return nil
		},
	}
	in.Flags(cmd, "", "the "+v.what)
	return cmd
}
