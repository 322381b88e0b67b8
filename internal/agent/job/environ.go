package job

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// kici returns a property of the kici context.
func (j *Job) kici(name string) any {
	k, _ := j.contexts["kici"].(map[string]any)
	return k[name]
}

func (j *Job) eventPath() string { return j.path("temp", "event.json") }

// scope is what expressions of the agent see. env is the env context there.
func (j *Job) scope(env map[string]string) expr.Env {
	contexts := maps.Clone(j.contexts)
	kici, _ := contexts["kici"].(map[string]any)
	kici = maps.Clone(kici)
	kici["workspace"], kici["event_path"] = j.workspace(), j.eventPath()
	contexts["kici"] = kici
	contexts["secrets"] = j.cfg.Spec.Secrets
	contexts["env"] = env
	contexts["steps"] = j.steps
	contexts["job"] = map[string]any{"status": j.status}
	contexts["runner"] = map[string]any{
		"name": j.cfg.AgentID, "os": runnerOS(), "arch": runnerArch(), "temp": j.temp(), "environment": "self-hosted",
	}
	return expr.Env{Contexts: contexts, Status: j.status, HashFiles: j.hashFiles}
}

// interpolate evaluates the values of an env map, in the order of their names so that errors are the same each time.
func (j *Job) interpolate(what string, in map[string]string, env expr.Env) (map[string]string, error) {
	out := make(map[string]string, len(in))
	for _, name := range slices.Sorted(maps.Keys(in)) {
		v, err := expr.Interpolate(in[name], env)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", what, name, err)
		}
		if strings.ContainsRune(v, 0) || strings.ContainsAny(name, "=\x00") || name == "" {
			return nil, fmt.Errorf("%s %q cannot be an environment variable", what, name)
		}
		out[name] = v
	}
	return out, nil
}

// jobEnv evaluates the env of workflow and job.
func (j *Job) jobEnv() error {
	env, err := j.interpolate("env", j.cfg.Spec.Env, j.scope(nil))
	if err != nil {
		return err
	}
	j.env = env
	return nil
}

// stepEnv is the env context of a step: job, $KICI_ENV, then the step's own.
func (j *Job) stepEnv(s lock.Step) (map[string]string, error) {
	own, err := j.interpolate("env", s.Env, j.scope(j.env))
	if err != nil {
		return nil, err
	}
	env := maps.Clone(j.env)
	maps.Copy(env, own)
	return env, nil
}

// markName is by what a node finds the processes that an agent left behind: what it says is the node's alone.
const markName = "KICI_AGENT_MARK"

// processEnv is a step's whole environment. Later layers win: the machine, the author's, $KICI_PATH, kici's own. No secret
// is in it that the author did not put there, and nothing of the agent's.
func (j *Job) processEnv(env map[string]string, files commandFiles) []string {
	all := map[string]string{}
	for _, kv := range j.cfg.Environ {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			if runtime.GOOS == "windows" { // which does not tell Path from PATH
				name = strings.ToUpper(name)
			}
			all[name] = value
		}
	}
	j.boxEnv(all)
	mark, marked := all[markName]
	all["CI"] = "true"
	maps.Copy(all, env)
	delete(all, markName)
	if marked {
		all[markName] = mark
	}
	if all["PATH"] == "" && runtime.GOOS != "windows" {
		all["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	if len(j.paths) > 0 {
		all["PATH"] = strings.Join(append(slices.Clone(j.paths), all["PATH"]), string(os.PathListSeparator))
	}
	if j.back != nil && j.back.Bin() != "" {
		all["PATH"] += string(os.PathListSeparator) + j.back.Bin()
	}
	if all["HOME"] == "" {
		all["HOME"] = j.path()
	}
	maps.Copy(all, j.reserved(files))
	out := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+"="+all[name])
	}
	return out
}

// aliases are the properties of the kici context that steps get as KICI_<NAME>, and as GITHUB_<NAME> because they mean the
// same.
var aliases = []string{
	"sha", "ref", "ref_name", "ref_type", "repository", "repository_owner", "event_name", "actor", "triggering_actor",
	"run_id", "run_number", "run_attempt", "workflow", "job", "base_ref", "head_ref", "server_url",
}

// reserved are the variables that nobody overrides.
func (j *Job) reserved(files commandFiles) map[string]string {
	out := map[string]string{
		"KICI": "true", "KICI_RUN_ID": j.cfg.Spec.RunID, "KICI_JOB_ID": j.cfg.Spec.JobID, "KICI_AGENT_ID": j.cfg.AgentID,
		"KICI_TEMP": j.temp(), "RUNNER_TEMP": j.temp(), "RUNNER_OS": runnerOS(), "RUNNER_ARCH": runnerArch(), "RUNNER_NAME": j.cfg.AgentID,
	}
	both := func(name, value string) { out["KICI_"+name], out["GITHUB_"+name] = value, value }
	for _, name := range aliases {
		if v := j.kici(name); v != nil {
			both(strings.ToUpper(name), cleanValue(expr.Text(v)))
		}
	}
	out["KICI_RUN_ID"] = j.cfg.Spec.RunID
	out["KICI_WORKFLOW"] = j.cfg.Spec.Workflow
	both("WORKSPACE", j.workspace())
	both("EVENT_PATH", j.eventPath())
	both("OUTPUT", files.output)
	both("ENV", files.env)
	both("PATH", files.path)
	if j.back != nil {
		maps.Copy(out, j.back.Variables())
	}
	out["KICI_SUMMARY"], out["GITHUB_STEP_SUMMARY"] = files.summary, files.summary
	return out
}

// cleanValue drops NUL bytes, which no environment can hold.
func cleanValue(s string) string { return strings.ReplaceAll(s, "\x00", "") }

func runnerOS() string {
	switch runtime.GOOS {
	case "linux":
		return "Linux"
	case "darwin":
		return "macOS"
	case "windows":
		return "Windows"
	}
	return runtime.GOOS
}

func runnerArch() string {
	switch runtime.GOARCH {
	case "amd64":
		return "X64"
	case "386":
		return "X86"
	}
	return strings.ToUpper(runtime.GOARCH)
}

// directory resolves a step's working directory.
func (j *Job) directory(s lock.Step, env expr.Env) (string, error) {
	for _, text := range []string{s.WorkingDirectory, j.def.Defaults.WorkingDirectory, j.defs.WorkingDirectory} {
		if text == "" {
			continue
		}
		d, err := expr.Interpolate(text, env)
		if err != nil {
			return "", fmt.Errorf("working-directory: %w", err)
		}
		if !filepath.IsAbs(d) {
			d = filepath.Join(j.workspace(), d)
		}
		if info, err := os.Stat(d); err != nil || !info.IsDir() {
			return "", fmt.Errorf("working-directory %s is not a directory", d)
		}
		return d, nil
	}
	return j.workspace(), nil
}
