package container

import (
	"encoding/json"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

// Paths inside a container.
const (
	ownFolder    = "/.kici"
	programPath  = ownFolder + "/kici"
	serverFolder = ownFolder + "/server" // the folder of the agents' socket
	workRoot     = ownFolder + "/work"   // writable for whichever user the image has
	workFolder   = workRoot + "/agents"
)

// Labels of a container (CT-15).
const (
	labelManaged  = "kici-managed"
	labelScaler   = "kici-scaler-name"
	labelAgent    = "kici-agent-id"
	labelLabels   = "kici-labels"
	labelJob      = "kici-bound-job-id"
	labelRun      = "kici-run-id"
	labelInstance = "kici-instance-id"
	labelCluster  = "kici-cluster"
	labelRules    = "kici-network-rules" // what the agent may reach, as JSON: it is made true again after a restart (HA-7)
)

// Bounds of every container.
const (
	pidsLimit    = 4096
	maxLogSize   = "4m" // of what the engine keeps of the agent's output
	defaultGrace = 10   // seconds between SIGTERM and SIGKILL (CT-23)
)

// launch is everything that a container depends on. options is computed from it without asking anybody.
type launch struct {
	spec    backend.Spec
	set     backend.Set
	volumes []string // folders for which the image wants volumes
	scaler  string
	host    backend.Host
	engine  endpoint
	podman  bool
	image   string
	url     string // where the agent finds its server, as it sees it
	socket  string // folder on this host that is mounted for it, '' for none
	program string // the agent's executable on this host, '' when it is copied in
	hosts   []string
	network string // '' is the engine's default
	rules   json.RawMessage
}

// containerName is what undoing a launch needs.
func containerName(agent string) string { return "kici-" + agent }

func (l launch) options() engineapi.NewContainer {
	return engineapi.NewContainer{
		Name: containerName(l.spec.AgentID),
		Config: &container.Config{
			Image: l.image, Hostname: hostname(l.spec.AgentID), Entrypoint: []string{programPath, "agent"}, Cmd: []string{}, WorkingDir: "/",
			Env: l.environment(), Labels: l.labels(), OpenStdin: true, StdinOnce: true, AttachStdin: true,
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // an image's own would look for its own program
			StopSignal:  "SIGTERM",
		},
		Host: l.hostConfig(),
	}
}

// hostname is at most what a host's name may have.
func hostname(agent string) string { return strings.TrimRight(agent[:min(len(agent), 63)], "-") }

// hostConfig is CT-12…14. Capabilities stay the engine's defaults: build steps need them, and the job's own user is the image's.
func (l launch) hostConfig() *container.HostConfig {
	pids := int64(pidsLimit)
	h := &container.HostConfig{
		Binds: slices.Clone(l.set.Options.Strings(keyVolumes)), ExtraHosts: l.hosts, NetworkMode: container.NetworkMode(l.network),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": maxLogSize}},
	}
	if l.podman {
		h.LogConfig.Type = "k8s-file"
	}
	h.PidsLimit = &pids
	if m := l.spec.Limits.MemBytes; m > 0 {
		h.Memory, h.MemorySwap = m, m // swap would only put the end off
	}
	if c := l.spec.Limits.CPUMilli; c > 0 {
		h.NanoCPUs = int64(math.Round(float64(c) * 1e6))
	}
	if l.set.Options.Bool(keyOwnSocket) && l.engine.local() {
		h.Binds = append(h.Binds, l.engine.socket()+":"+l.engine.socket())
	}
	if l.program != "" {
		h.Mounts = append(h.Mounts, readOnly(l.program, programPath))
	}
	if l.socket != "" {
		h.Mounts = append(h.Mounts, readOnly(l.socket, serverFolder))
	}
	h.Mounts = append(h.Mounts, volumeMounts(l.spec.AgentID, l.volumes)...)
	return h
}

// readOnly is a mount whose source must exist: a bind would make an empty folder in its place.
func readOnly(source, target string) mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true}
}

func (l launch) labels() map[string]string {
	out := ourLabels(l.host, l.scaler)
	out[labelAgent] = l.spec.AgentID
	out[labelLabels] = l.spec.LabelSet
	if l.spec.JobID != "" {
		out[labelJob], out[labelRun] = l.spec.JobID, l.spec.RunID
	}
	if l.rules != nil {
		out[labelRules] = string(l.rules)
	}
	return out
}

// ourLabels are on everything that a scaler of this node has made.
func ourLabels(h backend.Host, scaler string) map[string]string {
	own := map[string]string{labelManaged: "true", labelScaler: scaler, labelInstance: h.NodeID}
	if h.Cluster != "" { // without its database a node does not know it, and its own name is enough
		own[labelCluster] = h.Cluster
	}
	return own
}

// ownNames are an agent's identity and its ways home: nothing configured may change them (CT-8).
var ownNames = map[string]bool{
	"KICI_AGENT_TOKEN": true, "KICI_AGENT_TOKEN_FD": true, "KICI_AGENT_TOKEN_FILE": true, "KICI_ORCHESTRATOR_URL": true,
	"KICI_AGENT_ID": true, "KICI_LABELS": true, "KICI_SCALER_MANAGED": true, "KICI_EXECUTION_MODE": true, "KICI_WORK_DIR": true,
	"KICI_RUNTIME_IMAGE": true, "KICI_JOB_IMAGE_AGENT": true, "KICI_AGENT_MARK": true, "KICI_AGENT_DIR": true,
	"KICI_MIN_FREE_DISK_BYTES": true,
}

const forwardPrefix = "KICI_AGENT_ENV_"

// environment builds the layers of CT-8 over the image's own; later ones win, except over identity. The token is not among them.
func (l launch) environment() []string {
	env := map[string]string{}
	for _, kv := range l.host.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if short, ok := strings.CutPrefix(name, forwardPrefix); ok && short != "" {
			env[short] = value
		}
	}
	maps.Copy(env, l.set.Env)
	for name := range ownNames {
		delete(env, name)
	}
	env["KICI_ORCHESTRATOR_URL"] = l.url
	env["KICI_AGENT_ID"] = l.spec.AgentID
	env["KICI_LABELS"] = strings.Join(l.spec.Labels, ",")
	env["KICI_SCALER_MANAGED"] = "1"
	env["KICI_EXECUTION_MODE"] = "bare-metal"
	if image := l.set.Options.String(keyImage); image != "" {
		env["KICI_RUNTIME_IMAGE"] = image
	}
	env["KICI_WORK_DIR"] = workFolder
	env["KICI_AGENT_TOKEN_FD"] = "0"
	if n := l.spec.MinFreeDisk; n > 0 {
		env["KICI_MIN_FREE_DISK_BYTES"] = strconv.FormatInt(n, 10)
	}
	if l.spec.Image != nil {
		env["KICI_JOB_IMAGE_AGENT"] = "1"
	}
	if mode := l.set.Options.String("backpressureMode"); mode != "" {
		env["KICI_BACKPRESSURE_MODE"] = mode
	}
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// socketURL is how the agent names the socket that is mounted for it.
func socketURL(socket string) string {
	return "unix://" + path.Join(serverFolder, filepath.Base(socket))
}
