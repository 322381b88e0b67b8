// Package settingcmd is "kici cluster-settings", "kici org-settings" and "kici cluster-name": what changes while the server runs.
package settingcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// scope is one of the two kinds of settings.
type scope struct {
	noun, what string
	example    string // a key and a value
	names      []string
	list       func(*client.Client, context.Context) (client.Settings, error)
	set        func(*client.Client, context.Context, map[string]json.RawMessage) (client.SettingsChanged, error)
}

// Commands are the nouns.
func Commands(c *console.Console) []*cobra.Command {
	cluster := scope{
		"cluster-settings", "the cluster", "queueMaxDepth 20000", client.ClusterSettingNames,
		(*client.Client).ClusterSettings, (*client.Client).SetClusterSettings,
	}
	org := scope{
		"org-settings", "an organisation", "queueTimeoutMs 600000", client.OrgSettingNames,
		(*client.Client).OrgSettings, (*client.Client).SetOrgSettings,
	}
	clusterCmd, orgCmd := cluster.command(c), org.command(c)
	clusterCmd.AddCommand(propagation(c))
	orgCmd.AddCommand(globals(c, org, cluster))
	for _, a := range aspects {
		orgCmd.AddCommand(a.command(c, org))
	}
	orgCmd.PersistentFlags().StringVar(&c.Org, "customer-id", "", "the same as --org")
	_ = orgCmd.PersistentFlags().MarkHidden("customer-id")
	return []*cobra.Command{clusterCmd, orgCmd, name(c)}
}

func (s scope) command(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   s.noun,
		Short: "Show and change the settings of " + s.what,
		Long: "Settings of " + s.what + " change while the server runs. What is set here wins over the server's environment, and that over\n" +
			"the default. Every change is checked as a whole and recorded in the access log.",
		Example: "  kici " + s.noun + " show\n  kici " + s.noun + " set " + s.example,
	}
	cmd.AddCommand(s.show(c), s.change(c), s.reset(c))
	return cmd
}

func (s scope) show(c *console.Console) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "show [KEY]", Aliases: []string{"list"}, Short: "Show the settings of " + s.what, Args: cobra.MaximumNArgs(1), ValidArgs: s.names,
		Long: "Show settings with the values that hold and where they come from: live (set here), environment, or default.\n" +
			"Keys that nothing in this version reads are left out unless --all is given or they are named.",
		Example: "  kici " + s.noun + " show\n  kici " + s.noun + " show --all -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := s.list(cl, cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if out.Settings, err = only(out.Settings, args[0]); err != nil {
					return err
				}
			}
			return c.Print(out, func() error { return table(c, out, all || len(args) == 1) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those without effect in this version")
	return cmd
}

func only(all []client.Setting, key string) ([]client.Setting, error) {
	for _, x := range all {
		if strings.EqualFold(x.Key, key) || flagOf(x.Key) == key {
			return []client.Setting{x}, nil
		}
	}
	return nil, fmt.Errorf("there is no setting %q", key)
}

func table(c *console.Console, out client.Settings, all bool) error {
	var rows [][]console.Cell
	for _, x := range out.Settings {
		if x.NoEffect && !all && x.Source != "live" {
			continue
		}
		class := map[string]string{"live": "success", "environment": "held"}[x.Source]
		about := x.About
		if x.NoEffect {
			about += " (no effect in this version)"
		}
		rows = append(rows, []console.Cell{{Text: x.Key}, {Text: string(x.Value)}, {Text: x.Source, Class: class}, {Text: string(x.Default)}, {Text: about}})
	}
	if err := c.Table([]string{"KEY", "VALUE", "FROM", "DEFAULT", "WHAT IT IS"}, rows); err != nil {
		return err
	}
	c.Notice("version %d", out.Version)
	return nil
}

func (s scope) change(c *console.Console) *cobra.Command {
	given := map[string]*string{}
	cmd := &cobra.Command{
		Use: "set [KEY VALUE | KEY=VALUE …]", Short: "Change settings of " + s.what,
		Long: "Change settings: as KEY VALUE, as any number of KEY=VALUE, or by flags. null makes a key follow its default again.\n" +
			"All of it is done, or nothing.",
		Example: "  kici " + s.noun + " set " + s.example + "\n  kici " + s.noun + " set " + strings.Replace(s.example, " ", "=", 1) +
			"\n  kici " + s.noun + " set --" + flagOf(strings.Fields(s.example)[0]) + " null",
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := pairs(args)
			if err != nil {
				return err
			}
			for key, text := range given {
				if cmd.Flags().Changed(flagOf(key)) {
					set[key] = valueOf(*text)
				}
			}
			if len(set) == 0 {
				return console.Usage("name at least one setting, such as %s", s.example)
			}
			return s.apply(cmd.Context(), c, set)
		},
	}
	for _, key := range s.names {
		given[key] = cmd.Flags().String(flagOf(key), "", "a `value` for "+key+", or null")
	}
	return cmd
}

func (s scope) reset(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "reset KEY…", Short: "Make settings of " + s.what + " follow their defaults again", Args: cobra.MinimumNArgs(1), ValidArgs: s.names,
		Long:    "Make settings follow the server's environment, or their defaults, again.",
		Example: "  kici " + s.noun + " reset " + strings.Fields(s.example)[0],
		RunE: func(cmd *cobra.Command, args []string) error {
			set := map[string]json.RawMessage{}
			for _, key := range args {
				set[keyOf(key, s.names)] = json.RawMessage("null")
			}
			return s.apply(cmd.Context(), c, set)
		},
	}
}

func (s scope) apply(ctx context.Context, c *console.Console, set map[string]json.RawMessage) error {
	cl, err := c.Writer(ctx)
	if err != nil {
		return err
	}
	out, err := s.set(cl, ctx, set)
	if err != nil {
		return err
	}
	return c.Print(out, func() error {
		for _, w := range out.Warnings {
			c.Notice("%s", w)
		}
		if len(out.Changed) == 0 {
			c.Notice("nothing changed: it was so already (version %d)", out.Version)
			return nil
		}
		rows := make([][]console.Cell, len(out.Changed))
		for i, x := range out.Changed {
			rows[i] = console.Plain(x.Key, string(x.Old), string(x.New))
		}
		if err := c.Table([]string{"KEY", "WAS", "IS"}, rows); err != nil {
			return err
		}
		c.Notice("version %d", out.Version)
		return nil
	})
}

// pairs reads KEY VALUE or any number of KEY=VALUE.
func pairs(args []string) (map[string]json.RawMessage, error) {
	set := map[string]json.RawMessage{}
	if len(args) == 2 && !strings.Contains(args[0], "=") {
		set[args[0]] = valueOf(args[1])
		return set, nil
	}
	for _, a := range args {
		key, text, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			return nil, console.Usage("%q is not like KEY=VALUE", a)
		}
		set[key] = valueOf(text)
	}
	return set, nil
}

// valueOf is the JSON of what somebody typed: text that is no JSON is a string.
func valueOf(text string) json.RawMessage {
	b := []byte(text)
	if json.Valid(b) {
		return bytes.TrimSpace(b)
	}
	quoted, _ := json.Marshal(text)
	return quoted
}

// flagOf is a key as a flag: queueMaxDepth is --queue-max-depth.
func flagOf(key string) string {
	var b strings.Builder
	for _, r := range key {
		if unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// keyOf is the key that was meant by a flag's name.
func keyOf(text string, names []string) string {
	for _, n := range names {
		if flagOf(n) == text {
			return n
		}
	}
	return text
}

func propagation(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "propagation", Short: "Show which instance has which version of the settings", Args: cobra.NoArgs,
		Long:    "Show which version of the cluster's settings each instance has. One that is behind gets the newest within ten seconds.",
		Example: "  kici cluster-settings propagation",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.SettingsPropagation(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				rows := make([][]console.Cell, len(out.Instances))
				for i, x := range out.Instances {
					word, class := "has it", "success"
					switch {
					case !x.Live:
						word, class = "does not run", "skipped"
					case x.Behind:
						word, class = "behind", "held"
					}
					rows[i] = []console.Cell{{Text: x.Name}, {Text: x.InstanceID}, {Text: fmt.Sprint(x.Applied)}, {Text: word, Class: class}}
				}
				if err := c.Table([]string{"NAME", "INSTANCE", "VERSION", "STATE"}, rows); err != nil {
					return err
				}
				c.Notice("version %d is stored", out.Version)
				return nil
			})
		},
	}
}

func name(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster-name", Short: "Show and change the name of the cluster",
		Long:    "The cluster's name is in the names of all that its servers start on a machine.",
		Example: "  kici cluster-name get",
	}
	get := &cobra.Command{
		Use: "get", Aliases: []string{"show"}, Short: "Show the name of the cluster", Args: cobra.NoArgs, Example: "  kici cluster-name get",
		Long: "Show the name of the cluster as it is stored.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.ClusterName(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error { _, err := fmt.Fprintln(c.Out, console.Clean(out.Name)); return err })
		},
	}
	set := &cobra.Command{
		Use: "set NAME", Short: "Rename the cluster", Args: cobra.ExactArgs(1), Example: "  kici cluster-name set production",
		Long: "Rename the cluster. Running instances have the old name until they start again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.SetClusterName(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				if out.ReconnectRequired {
					c.Notice("start every instance again: until then they have the old name")
				}
				return c.Done("renamed", out.Name)
			})
		},
	}
	cmd.AddCommand(get, set)
	return cmd
}
