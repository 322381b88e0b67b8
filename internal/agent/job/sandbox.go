package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/internal/agent/sandbox"
	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/ci"
)

// Sandbox is what the machine's owner lets the steps of every job see and do; a job may ask for more (lock.Sandbox), and the server has
// let it through only if its organisation allows that.
type Sandbox struct {
	Network             string // ci.NetworkIsolated or ci.NetworkHost
	Read, Write, Hidden []string
}

// confine puts the steps to come into a sandbox, and says in the log what it is worth.
func (j *Job) confine(log *spool.Step) error {
	if j.cfg.Sandbox == nil {
		if j.def.Sandbox != nil {
			log.Notice("The job asks something of its sandbox, and this agent has none: steps see the machine as it is.")
		}
		return nil
	}
	for _, d := range []string{"home", "tmp", "root"} {
		if err := os.Mkdir(j.path(d), 0o700); err != nil && !os.IsExist(err) {
			return fmt.Errorf("make the sandbox: %w", err)
		}
	}
	if err := os.Chmod(j.path("tmp"), 0o777|os.ModeSticky); err != nil { // as programs expect it of /tmp; nobody else gets here
		return fmt.Errorf("make the sandbox: %w", err)
	}
	r, err := j.tree.Confine(j.soft, j.boxConfig(), j.cfg.Executable)
	switch {
	case errors.Is(err, sandbox.ErrUnsupported):
		return fmt.Errorf("this agent must run jobs in a sandbox: %w", err)
	case err != nil:
		return err
	}
	j.box = &r
	log.Notice("Sandbox: %s", strings.Join(r.Enforced, "; "))
	if len(r.Missing) > 0 {
		log.Notice("Not enforced by it on this machine: %s", strings.Join(r.Missing, "; "))
	}
	return nil
}

func (j *Job) boxConfig() sandbox.Config {
	own := j.cfg.Sandbox
	c := sandbox.Config{
		Write: append([]string{j.workspace(), j.temp(), j.path("home")}, resolved(own.Write)...), Read: resolved(own.Read),
		Hidden: own.Hidden, Tmp: j.path("tmp"), Root: j.path("root"), Network: own.Network,
	}
	if want := j.def.Sandbox; want != nil {
		c.Capabilities = want.Capabilities
		if want.Network == ci.NetworkHost {
			c.Network = ci.NetworkHost
		}
	}
	if j.back != nil {
		c.Read = append(c.Read, j.back.Dir())
		if bin := j.back.Bin(); bin != "" {
			c.Read = append(append(c.Read, bin), resolved([]string{j.cfg.Executable})...)
		}
	}
	return c
}

// resolved are paths, and what those of them lead to that are links. What is not there is left to be said by who looks.
func resolved(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, p)
		if to, err := filepath.EvalSymlinks(p); err == nil && to != p {
			out = append(out, to)
		}
	}
	return out
}

// boxEnv replaces what names folders that are not there in a sandbox.
func (j *Job) boxEnv(env map[string]string) {
	if j.box == nil {
		return
	}
	env["HOME"] = j.path("home")
	delete(env, "XDG_RUNTIME_DIR")
	delete(env, "XDG_CACHE_HOME")
	delete(env, "TMPDIR")
	if !j.box.Private {
		env["TMPDIR"] = j.path("tmp")
	}
}
