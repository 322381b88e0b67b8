package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/diagnose"
	"github.com/kici-go/kici/internal/git"
)

// machine are the checks that need nothing of kici's.
func machine() []diagnose.Check {
	return []diagnose.Check{
		asker("git", gitVersion),
		asker("open files", func(context.Context) diagnose.Finding { return openFiles() }),
		asker("processes", func(context.Context) diagnose.Finding { return killMethod() }),
		asker("systemd unit", func(context.Context) diagnose.Finding { return unit(unitFolders) }),
	}
}

func program(c *console.Console) func(context.Context) diagnose.Finding {
	return func(context.Context) diagnose.Finding {
		return diagnose.Passed("kici %s, %s/%s, %s", or(c.Version, "dev"), runtime.GOOS, runtime.GOARCH, runtime.Version())
	}
}

// oldestGit has partial fetches by commit id and safe.directory as kici uses them.
var oldestGit = [2]int{2, 30}

func gitVersion(ctx context.Context) diagnose.Finding {
	out, err := git.Run(ctx, git.Cmd{Args: []string{"--version"}})
	if err != nil {
		return diagnose.Failed("install git 2.30 or newer on every machine that runs the server or agents", "git cannot be run: %v", err)
	}
	return judgeGit(strings.TrimSpace(string(out)))
}

func judgeGit(text string) diagnose.Finding {
	var have [2]int
	if _, err := fmt.Sscanf(text, "git version %d.%d", &have[0], &have[1]); err != nil {
		return diagnose.Warned("install git 2.30 or newer", "%q names no version", text)
	}
	if have[0] < oldestGit[0] || have[0] == oldestGit[0] && have[1] < oldestGit[1] {
		return diagnose.Failed("install git 2.30 or newer", "%s is too old", text)
	}
	return diagnose.Passed("%s", text)
}

// unitFolders are where systemd looks, the strongest first.
var unitFolders = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// unit looks whether systemd would kill the agents with the server, which outlive it on purpose.
func unit(folders []string) diagnose.Finding {
	seen := map[string]bool{}
	var good []string
	for _, dir := range folders {
		files, _ := filepath.Glob(filepath.Join(dir, "kici*.service")) // the pattern is right
		for _, file := range files {
			name := filepath.Base(file)
			text, err := os.ReadFile(file)
			if seen[name] || err != nil || !strings.Contains(string(text), " server") {
				continue
			}
			seen[name] = true
			mode := killMode(string(text), filepath.Join(dir, name+".d"))
			if mode != "process" {
				return diagnose.Warned("set KillMode=process in the section [Service], then systemctl daemon-reload",
					"%s has KillMode=%s: a restart of the server would kill the jobs that run", file, mode)
			}
			good = append(good, name)
		}
	}
	if len(good) == 0 {
		return diagnose.Skipped("no systemd unit runs a kici server here")
	}
	return diagnose.Passed("%s: a restart leaves running jobs alone", strings.Join(good, ", "))
}

// killMode is the last setting in a unit and its drop-ins; systemd's own default is control-group.
func killMode(text, dropIns string) string {
	files, _ := filepath.Glob(filepath.Join(dropIns, "*.conf"))
	for _, f := range files {
		if more, err := os.ReadFile(f); err == nil {
			text += "\n" + string(more)
		}
	}
	mode := "control-group"
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "KillMode="); ok {
			mode = strings.TrimSpace(v)
		}
	}
	return mode
}

// fewOpenFiles is what a server with some hundred agents gets along with.
const fewOpenFiles = 4096

func judgeOpenFiles(soft, hard uint64) diagnose.Finding {
	if hard < fewOpenFiles { // Go raises the soft limit to the hard one by itself
		return diagnose.Warned("raise it: ulimit -n 65536, or LimitNOFILE=65536 in the unit", "a process may have only %d files open; each agent and each browser needs some", hard)
	}
	return diagnose.Passed("a process may have %d files open (at most %d)", soft, hard)
}

// missing says whether an error is only that something is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
