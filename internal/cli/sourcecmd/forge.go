package sourcecmd

import (
	"encoding/json"
	"fmt"
	"os"
	"path"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// forges are the kinds of sources whose repository lives on a forge, with what people call them.
var forges = map[string]string{"github": "GitHub", "gitea": "Gitea", "gitlab": "GitLab"}

// forgeFlags are the flags that say where a repository is and how it is used. set has those that were given, by their option's name.
type forgeFlags struct {
	repo, url, api, clone, cloneURL, hosts, branch, forks, statuses string

	private bool
}

func (o *forgeFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&o.repo, "repo", "", "the repository: owner/name, as in the address of its page")
	f.StringVar(&o.url, "url", "", "`address` of the forge, such as https://git.example.com (here not the kici server's: that is --server)")
	f.StringVar(&o.api, "api-url", "", "address of its API, when it is not where it usually is")
	f.StringVar(&o.clone, "clone", "", "how to clone: https (default) or ssh")
	f.StringVar(&o.cloneURL, "clone-url", "", "what to clone, when it is not where it usually is")
	f.StringVar(&o.hosts, "known-hosts-file", "", "`file` with the forge's host keys for SSH, in the form of known_hosts")
	f.StringVar(&o.branch, "default-branch", "", "asked from the forge when not given")
	f.StringVar(&o.forks, "forks", "", "pull requests from forks: ignore (default) or run, with the base branch's workflows and without secrets")
	f.StringVar(&o.statuses, "statuses", "", "results beside commits: jobs (default), workflows or off")
	f.BoolVar(&o.private, "allow-private", false, "the forge is on this machine or a private network, and may speak plain HTTP")
}

// into puts what was given into options; the rest of them stays.
func (o *forgeFlags) into(f *pflag.FlagSet, options map[string]any) error {
	for flag, option := range map[string]struct {
		key   string
		value any
	}{
		"repo": {"repository", o.repo}, "url": {"url", o.url}, "api-url": {"apiUrl", o.api}, "clone": {"clone", o.clone},
		"clone-url": {"cloneUrl", o.cloneURL}, "default-branch": {"defaultBranch", o.branch}, "forks": {"forks", o.forks},
		"statuses": {"statuses", o.statuses}, "allow-private": {"allowPrivate", o.private},
	} {
		switch {
		case !f.Changed(flag):
		case option.value == "" || option.value == false:
			delete(options, option.key)
		default:
			options[option.key] = option.value
		}
	}
	if o.hosts != "" {
		text, err := os.ReadFile(o.hosts)
		if err != nil {
			return err
		}
		options["knownHosts"] = string(text)
	}
	return nil
}

func addForge(c *console.Console, kind string) *cobra.Command {
	s := client.NewSource{Kind: kind}
	var o forgeFlags
	var secret, token console.SecretInput
	var keyFile string
	word := forges[kind]
	about := map[string]string{"gitea": " (or Forgejo)"}[kind]
	cmd := &cobra.Command{
		Use: kind + " [REPOSITORY]", Short: "Add a repository on " + word + about, Args: cobra.MaximumNArgs(1),
		Long: fmt.Sprintf(`Add a repository on %s%s. Nothing is asked of the forge for it; "kici source check" does that.
The token is for cloning, for results beside commits, and for "kici source install-hook".`, word, about),
		Example: exampleOf(kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if o.repo != "" && o.repo != args[0] {
					return console.Usage("name the repository once: %q or --repo %q", args[0], o.repo)
				}
				if err := cmd.Flags().Set("repo", args[0]); err != nil {
					return err
				}
			}
			if o.repo == "" {
				return console.Usage("name the repository: kici source add %s OWNER/NAME", kind)
			}
			var err error
			if s, err = fromFlags(c, cmd, s, &o); err != nil {
				return err
			}
			if s.Token, err = given(c, &token, "token for "+o.repo); err != nil {
				return err
			}
			if keyFile != "" {
				text, err := os.ReadFile(keyFile)
				if err != nil {
					return err
				}
				s.SSHKey = string(text)
			}
			return create(c, cmd, s, &secret)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Name, "name", "", "name of the source (default: the repository's)")
	o.flags(f)
	token.Flags(cmd, "token", "the forge's token")
	f.StringVar(&keyFile, "ssh-key-file", "", "`file` with the private key for clones by SSH")
	secret.Flags(cmd, "secret", "what the forge signs with; made when none is given")
	return cmd
}

func exampleOf(kind string) string {
	where := map[string]string{"gitea": " --url https://git.example.com"}[kind]
	return fmt.Sprintf(`  kici source add %s acme/shop%s --token-from-file token.txt
  kici source add %s acme/shop%s --clone ssh --ssh-key-file deploy_key --known-hosts-file known_hosts`, kind, where, kind, where)
}

// fromFlags completes a new source.
func fromFlags(c *console.Console, cmd *cobra.Command, s client.NewSource, o *forgeFlags) (client.NewSource, error) {
	if s.Name == "" {
		s.Name = nameOf(path.Base(o.repo))
	}
	options := map[string]any{}
	if err := o.into(cmd.Flags(), options); err != nil {
		return s, err
	}
	var err error
	s.Options, err = json.Marshal(options)
	return s, err
}

// given reads a secret when a way to it was named.
func given(c *console.Console, in *console.SecretInput, what string) (string, error) {
	if !in.Given() {
		return "", nil
	}
	return in.Read(c, what)
}

func update(c *console.Console) *cobra.Command {
	var o forgeFlags
	cmd := &cobra.Command{
		Use: "update SOURCE", Short: "Change how a source on a forge is used", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		Long: `Change how a source on a forge is used. What is not named stays; an empty value takes the default again.
Another repository starts anew: what the former one had registered is forgotten, its runs stay.`,
		Example: `  kici source update shop --forks run
  kici source update shop --repo acme/store`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			s, err := cl.Source(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if forges[s.Kind] == "" {
				return fmt.Errorf("%s is a %s source: remove it and add it again to change it", s.Name, s.Kind)
			}
			options := map[string]any{}
			if err := json.Unmarshal(s.Config, &options); err != nil {
				return fmt.Errorf("options of %s: %w", s.Name, err)
			}
			if err := o.into(cmd.Flags(), options); err != nil {
				return err
			}
			text, err := json.Marshal(options)
			if err != nil {
				return err
			}
			out, err := cl.UpdateSource(cmd.Context(), s.ID, client.SourceUpdate{Options: text})
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return fields(c, out) })
		},
	}
	o.flags(cmd.Flags())
	return cmd
}
