// Package logincmd is "kici login", "kici logout" and "kici dashboard".
package logincmd

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// Commands returns the three commands, to be mounted at the root.
func Commands(c *console.Console) []*cobra.Command {
	return []*cobra.Command{login(c), logout(c), dashboard(c)}
}

// address makes a server address of what was typed: https unless it is this machine.
func address(s string) (string, error) {
	if !strings.Contains(s, "://") {
		host := s
		if i := strings.IndexAny(s, "/:"); i >= 0 {
			host = s[:i]
		}
		if host == "localhost" || strings.HasPrefix(host, "127.") || host == "[" {
			s = "http://" + s
		} else {
			s = "https://" + s
		}
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", console.Usage("%q is not an address like https://ci.example.org", s)
	}
	u.RawQuery, u.Fragment, u.User = "", "", nil
	return strings.TrimRight(u.String(), "/"), nil
}

func login(c *console.Console) *cobra.Command {
	var in console.SecretInput
	cmd := &cobra.Command{
		Use: "login [URL]", Short: "Remember a server and a token on this machine", Args: cobra.MaximumNArgs(1),
		Long: `Remember a server and a token in the user's configuration directory, readable by this user only. Later commands use
them unless --server or --token say otherwise. On the machine of the server no login is needed.`,
		Example: `  kici login https://ci.example.org
  kici login https://ci.example.org --from-file token.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			server := c.ServerURL()
			if len(args) == 1 {
				var err error
				if server, err = address(args[0]); err != nil {
					return err
				}
			}
			token := c.Token
			if token == "" {
				var err error
				if token, err = in.Read(c, "token for "+server); err != nil {
					return err
				}
			}
			cl, err := c.Dial(server, strings.TrimSpace(token))
			if err != nil {
				return err
			}
			if _, err := cl.CheckProtocol(cmd.Context()); err != nil {
				return err
			}
			me, err := cl.WhoAmI(cmd.Context())
			if err != nil {
				if client.IsStatus(err, http.StatusUnauthorized) {
					return fmt.Errorf("%s does not accept the token: %s", server, err.Error()) // not wrapped: the hint of a 401 is about another token
				}
				return err
			}
			path, err := c.SaveLogin(server, strings.TrimSpace(token))
			if err != nil {
				return fmt.Errorf("remember the login: %w", err)
			}
			c.Notice("logged in to %s as %s (%s); the token is in %s", server, me.Label, me.Role, path)
			return nil
		},
	}
	in.Flags(cmd, "", "the token")
	return cmd
}

func logout(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "logout [URL]",
		Example: `  kici logout
  kici logout https://ci.example.org`, Short: "Forget the token of a server", Args: cobra.MaximumNArgs(1),
		Long: "Forget the token of a server on this machine. The token itself stays valid: see \"kici token revoke\".",
		RunE: func(_ *cobra.Command, args []string) error {
			server := c.ServerURL()
			if len(args) == 1 {
				var err error
				if server, err = address(args[0]); err != nil {
					return err
				}
			}
			if _, err := c.SaveLogin(server, ""); err != nil {
				return err
			}
			return c.Print(map[string]string{"forgot": server}, func() error {
				c.Notice("forgot the token of %s; it stays valid until it is revoked", server)
				return nil
			})
		},
	}
}

func dashboard(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:  "dashboard",
		Long: "Print, or open, a one-time address that logs this person into the dashboard. It ends after a few minutes.", Short: "Print a link that signs in to the dashboard, once", Args: cobra.NoArgs,
		Example: "  xdg-open \"$(kici dashboard)\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			link, err := cl.LoginLink(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(link, func() error {
				_, err := fmt.Fprintln(c.Out, console.CleanLine(link.URL))
				c.Notice("good for one sign-in until %s", console.At(&link.ExpiresAt))
				return err
			})
		},
	}
}
