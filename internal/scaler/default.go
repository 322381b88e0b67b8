package scaler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DefaultOptions shape the file that a first start writes (D15).
type DefaultOptions struct {
	CPUs      int
	Labels    []string // of the one label set; empty is "linux"
	RunAs     string   // a root server's agents run as this user
	AllowRoot bool     // … or as root
}

// WriteDefault writes scalers.yaml unless the file is there already. created says that it did.
func WriteDefault(path string, o DefaultOptions) (created bool, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write default scalers.yaml: %w", err)
	}
	_, err = f.WriteString(DefaultConfig(o))
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // half a file would be read at the next start
		return false, fmt.Errorf("write default %s: %w", filepath.Base(path), err)
	}
	return true, nil
}

// DefaultConfig is the text of a first scalers.yaml: one bare-metal scaler.
func DefaultConfig(o DefaultOptions) string {
	labels := o.Labels
	if len(labels) == 0 {
		labels = []string{"linux"}
	}
	agents := max(2, o.CPUs*2)
	user := "    # runAs: ci            # run agents as this user; needs a server that runs as root\n"
	switch {
	case o.RunAs != "":
		user = "    runAs: " + o.RunAs + "          # the server runs as root, its agents must not; allowRoot: true lets them\n"
	case o.AllowRoot:
		user = "    allowRoot: true        # agents may run as root; runAs: <user> is safer\n"
	}
	return strings.NewReplacer(
		"@labels@", strings.Join(labels, ", "), "@agents@", fmt.Sprint(agents), "@user@\n", user,
	).Replace(defaultText)
}

const defaultText = `# How kici starts agents. kici wrote this file at its first start and never changes it: it is yours to edit.
# A change is taken up within seconds. "kici scaler validate" names every mistake with its line, "kici scaler reload --dry-run" what will change.
version: 1

# All agents of this server together. Every agent counts until nothing of it is left.
globalMaxAgents: @agents@
# globalResourceCap: {maxCpu: 8, maxMemory: 16g}   # on the sum of what jobs request

scalers:
  - name: local
    type: bare-metal       # agents are processes of this machine: they see its files and its network
    maxAgents: @agents@
    maxConcurrentSpawns: 8 # a throttle on starting, not a cap
@user@
    # resourceCap: {maxCpu: 4, maxMemory: 8g}
    # workDir: /srv/kici   # where agents keep their workspaces
    # sandbox: true        # Linux, not as root: jobs see their workspace and a read-only system, and no network;
    # sandboxNetwork: host # … or this machine's
    labelSets:
      # A job gets an agent from here when its runs-on names only these labels.
      - labels: [@labels@]
        # resources: {cpus: 1, memory: 1g}   # for jobs that declare none
        # env: {GOPROXY: direct}             # for every agent of this set
`
