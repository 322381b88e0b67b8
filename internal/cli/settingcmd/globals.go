package settingcmd

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// repoRule is an entry of allowedRepos and deniedRepos.
type repoRule struct {
	RoutingKey string `json:"routingKey,omitempty"`
	Pattern    string `json:"pattern"`
}

// globals is the noun for what rules global workflows: the cluster's switch and the organisation's lists.
func globals(c *console.Console, org, cluster scope) *cobra.Command {
	a := aspect{name: "global-workflows", keys: []string{"allowedRepos", "deniedRepos"}}
	cmd := &cobra.Command{
		Use: a.name, Short: "Show and change whose workflows may follow other repositories",
		Long:    "Global workflows follow other repositories. The cluster switches them on; an organisation says whose count, and whom they leave alone.",
		Example: "  kici org-settings global-workflows show\n  kici org-settings global-workflows allow-add 'acme/*'",
	}
	cmd.AddCommand(&cobra.Command{
		Use: "show", Short: "Show the lists of the organisation", Args: cobra.NoArgs, Long: "Show allowedRepos and deniedRepos.", Example: "  kici org-settings global-workflows show",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.show(cmd, c, org) },
	}, &cobra.Command{
		Use: "reset", Short: "Make both lists follow their defaults again", Args: cobra.NoArgs, Long: "Reset allowedRepos and deniedRepos.", Example: "  kici org-settings global-workflows reset",
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := a.change("reset", nil, nil)
			if err != nil {
				return err
			}
			return org.apply(cmd.Context(), c, set)
		},
	}, &cobra.Command{
		Use: "set-enabled BOOL", Short: "Switch global workflows on or off, for the whole cluster", Args: cobra.ExactArgs(1),
		Long:    "Switch global workflows on or off. It is a setting of the cluster: globalWorkflowsEnabled.",
		Example: "  kici org-settings global-workflows set-enabled true",
		RunE: func(cmd *cobra.Command, args []string) error {
			return cluster.apply(cmd.Context(), c, map[string]json.RawMessage{"globalWorkflowsEnabled": valueOf(args[0])})
		},
	})
	cmd.AddCommand([]*cobra.Command{
		edit(c, "allow-add", "allowedRepos", true, "Let a repository's global workflows count"),
		edit(c, "allow-remove", "allowedRepos", false, "Take a repository from those whose global workflows count"),
		edit(c, "deny-add", "deniedRepos", true, "Keep global workflows away from a repository"),
		edit(c, "deny-remove", "deniedRepos", false, "Let global workflows follow a repository again"),
	}...)
	return cmd
}

// edit changes one entry of a list. It reads the list and writes it whole: two people at it at the same time see what the other
// did in the access log.
func edit(c *console.Console, verb, key string, add bool, short string) *cobra.Command {
	var routingKey string
	cmd := &cobra.Command{
		Use: verb + " PATTERN", Short: short, Args: cobra.ExactArgs(1),
		Long:    short + ": changes the setting " + key + ". The pattern is a glob over the repository's identifier.",
		Example: "  kici org-settings global-workflows " + verb + " 'acme/*'",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			now, err := cl.OrgSettings(cmd.Context())
			if err != nil {
				return err
			}
			list, err := rulesOf(now, key)
			if err != nil {
				return err
			}
			rule := repoRule{RoutingKey: routingKey, Pattern: args[0]}
			at := slices.Index(list, rule)
			switch {
			case add && at < 0:
				list = append(list, rule)
			case !add && at < 0:
				return fmt.Errorf("%q is not in %s", args[0], key)
			case !add:
				list = slices.Delete(list, at, at+1)
			}
			text, err := json.Marshal(list)
			if err != nil {
				return err
			}
			if len(list) == 0 && key == "allowedRepos" {
				c.Notice("the list is empty now: nobody's global workflows count; \"kici org-settings reset allowedRepos\" allows all")
			}
			org := scope{set: (*client.Client).SetOrgSettings}
			return org.apply(cmd.Context(), c, map[string]json.RawMessage{key: text})
		},
	}
	cmd.Flags().StringVar(&routingKey, "routing-key", "", "only of this source")
	return cmd
}

func rulesOf(s client.Settings, key string) (list []repoRule, err error) {
	for _, x := range s.Settings {
		if x.Key == key {
			err = json.Unmarshal(x.Value, &list)
		}
	}
	if list == nil {
		list = []repoRule{}
	}
	return list, err
}
