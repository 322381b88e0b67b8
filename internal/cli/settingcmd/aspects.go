package settingcmd

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// aspect is a part of an organisation's settings under the name that the operator's table gives it.
type aspect struct {
	name, short string
	keys        []string
	example     string // what may stand behind "set"
	verbs       []verb
}

// verb sets one key. Lists take every argument as an entry.
type verb struct {
	name, key, argument string
	list                bool
}

var aspects = []aspect{
	{name: "allow-http-npm", short: "whether package registries without TLS may be used", keys: []string{"allowHttpNpmRegistries"}, example: "true"},
	{name: "allow-untrusted-dockerfile-builds", short: "whether contributors that are not trusted may build images", keys: []string{"allowUntrustedDockerfileBuilds"}, example: "true"},
	{name: "backup-freshness", short: "the age of the last backup that is worth a warning", keys: []string{"backupStalenessWarnHours"}, example: "48"},
	{
		name: "reroute", short: "how jobs are passed on to peers", example: "rerouteMaxHops=2",
		keys: []string{"rerouteSpawnWindowMs", "rerouteAckTimeoutMs", "rerouteMaxHops", "rerouteSpawnMaxAttempts", "rerouteSpawnRetryBackoffMs"},
	},
	{name: "queue-timeout", short: "how long a job waits for an agent", keys: []string{"queueTimeoutMs"}, example: "600000"},
	{
		name: "approval", short: "how long approvals are waited for, and whether people may approve what they started", example: "approvalExpirySeconds=3600",
		keys:  []string{"approvalExpirySeconds", "allowSelfApproval"},
		verbs: []verb{{name: "set-expiry", key: "approvalExpirySeconds", argument: "SECONDS"}, {name: "set-self-approval", key: "allowSelfApproval", argument: "BOOL"}},
	},
	{name: "dispatch-ack", short: "how long an agent has to acknowledge a job", keys: []string{"dispatchAckTimeoutMs"}, example: "20000"},
	{name: "scaler-spawn-timeout", short: "how long the start of an agent may take", keys: []string{"scalerSpawnTimeoutMs"}, example: "600000"},
	{name: "ingest-concurrency", short: "how many deliveries are received at once", keys: []string{"ingestMaxConcurrency"}, example: "16"},
	{
		name: "sandbox-allowlist", short: "what jobs may ask of the host", example: "sandboxAllowHostNetwork=true", keys: []string{"sandboxAllowedCapabilities", "sandboxAllowHostNetwork"},
		verbs: []verb{
			{name: "set-capabilities", key: "sandboxAllowedCapabilities", argument: "CAP_NAME…", list: true},
			{name: "allow-host-network", key: "sandboxAllowHostNetwork", argument: "BOOL"},
		},
	},
	{name: "user-cache", short: "the room for caches, and how long they are kept", keys: []string{"userCacheQuotaBytes", "userCacheTtlMs"}, example: "userCacheQuotaBytes=1073741824"},
	{
		name: "artifacts", short: "the room for artifacts, and how long they are kept", keys: []string{"artifactQuotaBytes", "artifactTtlMs", "artifactMaxBytes", "artifactMaxPerRun"},
		example: "artifactMaxPerRun=10",
	},
	{name: "dashboard-writes", short: "what the dashboard may do", keys: []string{"dashboardWrites"}, example: "--op run.cancel=disabled"},
}

// command is one command for all that can be done with the aspect: these are second names for what show, set and reset do.
func (a aspect) command(c *console.Console, org scope) *cobra.Command {
	usage := []string{"show", "set " + a.takes()}
	examples := []string{"show", "set " + a.example, "reset"}
	for _, v := range a.verbs {
		usage = append(usage, v.name+" "+v.argument)
	}
	var ops []string
	cmd := &cobra.Command{
		Use: a.name + " [" + strings.Join(append(usage, "reset"), " | ") + "]", Short: "Show or set " + a.short,
		Long:      "Show, set or reset " + a.short + ": the same as show, set and reset with " + strings.Join(a.keys, ", ") + ".",
		Example:   "  kici org-settings " + a.name + " " + strings.Join(examples, "\n  kici org-settings "+a.name+" "),
		ValidArgs: []string{"show", "set", "reset"}, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "show" && len(args) == 1 {
				return a.show(cmd, c, org)
			}
			set, err := a.change(args[0], args[1:], ops)
			if err != nil {
				return err
			}
			return org.apply(cmd.Context(), c, set)
		},
	}
	if a.name == "dashboard-writes" {
		cmd.Flags().StringArrayVar(&ops, "op", nil, "an `operation=value`: enabled, encrypted (only over TLS) or disabled; replaces what was set")
	}
	return cmd
}

func (a aspect) takes() string {
	switch {
	case a.name == "dashboard-writes":
		return "--op NAME=VALUE…"
	case len(a.keys) == 1:
		return "VALUE"
	}
	return "KEY=VALUE…"
}

func (a aspect) show(cmd *cobra.Command, c *console.Console, org scope) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	out, err := org.list(cl, cmd.Context())
	if err != nil {
		return err
	}
	out.Settings = slices.DeleteFunc(out.Settings, func(s client.Setting) bool { return !slices.Contains(a.keys, s.Key) })
	return c.Print(out, func() error { return table(c, out, true) })
}

// change is what a verb with its arguments sets.
func (a aspect) change(name string, args, ops []string) (map[string]json.RawMessage, error) {
	set := map[string]json.RawMessage{}
	switch at := slices.IndexFunc(a.verbs, func(v verb) bool { return v.name == name }); {
	case at >= 0 && a.verbs[at].list:
		text, err := json.Marshal(args)
		set[a.verbs[at].key] = text
		return set, err
	case at >= 0 && len(args) == 1:
		set[a.verbs[at].key] = valueOf(args[0])
		return set, nil
	case name == "reset" && len(args) == 0:
		for _, k := range a.keys {
			set[k] = json.RawMessage("null")
		}
		return set, nil
	case name == "set" && len(ops) > 0 && len(args) == 0:
		text, err := operations(ops)
		set[a.keys[0]] = text
		return set, err
	case name == "set" && len(a.keys) == 1 && len(args) == 1 && len(ops) == 0:
		set[a.keys[0]] = valueOf(args[0])
		return set, nil
	case name == "set" && len(a.keys) > 1 && len(args) > 0:
		return a.pairs(args)
	}
	return nil, console.Usage("%q with %d arguments is not among what this does", name, len(args))
}

func (a aspect) pairs(args []string) (map[string]json.RawMessage, error) {
	set, err := pairs(args)
	for k := range set {
		if !slices.Contains(a.keys, k) {
			return nil, console.Usage("%q is none of %s", k, strings.Join(a.keys, ", "))
		}
	}
	return set, err
}

// operations is the value of dashboardWrites.
func operations(ops []string) (json.RawMessage, error) {
	all := map[string]string{}
	for _, op := range ops {
		name, value, ok := strings.Cut(op, "=")
		if !ok || name == "" {
			return nil, console.Usage("--op %s is not like run.cancel=disabled", op)
		}
		all[name] = value
	}
	return json.Marshal(all)
}
