package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/kici-go/kici/internal/cli/doctorcmd"
	"github.com/kici-go/kici/internal/diagnose"
	"github.com/kici-go/kici/internal/scaler"
	"github.com/kici-go/kici/internal/secret"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
)

// hostChecks are the checks of "kici doctor" that need the server's rooms. They change nothing.
func hostChecks(h doctorcmd.Host) []diagnose.Check {
	if h.DataDir == "" {
		h.DataDir = existingDataDir()
	}
	on := func(name string, f func() diagnose.Finding) diagnose.Check {
		return diagnose.Check{Name: name, Ask: func(context.Context) diagnose.Finding { return f() }}
	}
	return []diagnose.Check{
		on("environment", func() diagnose.Finding { return judgeEnvironment(h.Environ) }),
		on("data directory", func() diagnose.Finding { return lookAtDataDir(h.DataDir) }),
		on("disk", func() diagnose.Finding { return lookAtHostDisk(h.DataDir) }),
		on("master key", func() diagnose.Finding { return lookAtMasterKey(h.DataDir) }),
		on("scalers.yaml", func() diagnose.Finding { return judgeScalers(scalerPath(h.ScalerConfig, h.DataDir), h.ScalerDir) }),
		{Name: "database", Ask: func(ctx context.Context) diagnose.Finding { return probeDatabase(ctx, h) }},
	}
}

// existingDataDir is the first of the usual places that is there, else the one that a server would make.
func existingDataDir() string {
	for _, dir := range usualDataDirs() {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return DefaultDataDir()
}

func judgeEnvironment(environ []string) diagnose.Finding {
	if err := checkEnvironment(environ); err != nil {
		return diagnose.Failed("unset it, or correct the name: a server refuses to start with it", "%v", err)
	}
	return diagnose.Passed("every KICI_ variable is known")
}

func lookAtDataDir(dir string) diagnose.Finding {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return diagnose.Skipped("%s is not there: no server of this user has been started; --data-dir names another", dir)
	case err != nil:
		return diagnose.Failed("run this as the server's user, or as root", "%v", err)
	case !info.IsDir():
		return diagnose.Failed("move it away, or name another --data-dir", "%s is no directory", dir)
	case info.Mode().Perm()&0o077 != 0 && !onWindows:
		return diagnose.Warned(fmt.Sprintf("chmod 700 %s", shellWord(dir)), "%s has mode %04o: other users can look into it", dir, info.Mode().Perm())
	}
	if text := foreignOwner(info); text != "" {
		return diagnose.Warned("run this, and the server, as the directory's owner", "%s %s", dir, text)
	}
	if pid := lockHolder(filepath.Join(dir, "server.lock")); pid > 0 {
		return diagnose.Passed("%s, in use by process %d", dir, pid)
	}
	return diagnose.Passed("%s, in use by no server", dir)
}

type diskLimits struct{ fail, warn int64 }

func judgeDisk(dir string, free int64, l diskLimits) diagnose.Finding {
	text := fmt.Sprintf("%s free where %s is", humanize.IBytes(uint64(max(free, 0))), dir)
	switch {
	case free < l.fail:
		return diagnose.Failed("make room: with so little, /ready fails and writes may be refused", "only %s", text)
	case free < l.warn:
		return diagnose.Warned("make room", "only %s", text)
	}
	return diagnose.Passed("%s", text)
}

// fewInodes is a share of all, in percent.
const fewInodes = 5

func lookAtHostDisk(dir string) diagnose.Finding {
	free, err := service.FreeDisk(dir)
	if err != nil {
		return diagnose.Skipped("%s is not there", dir)
	}
	if left, total := inodes(dir); total > 0 && left*100 < total*fewInodes {
		return diagnose.Warned("delete small files: when there are none left, nothing can be written", "only %d of %d inodes are free where %s is", left, total, dir)
	}
	return judgeDisk(dir, free, diskLimits{diskFail, diskWarn})
}

func lookAtMasterKey(dir string) diagnose.Finding {
	path := filepath.Join(dir, secret.KeyFile)
	info, err := os.Stat(path)
	switch {
	case err != nil && os.Getenv(secret.KeyVariable) != "":
		return diagnose.Passed("taken from %s", secret.KeyVariable)
	case errors.Is(err, fs.ErrNotExist):
		return diagnose.Skipped("%s is not there", path)
	case err != nil:
		return diagnose.Skipped("%v", err)
	case info.Mode().Perm()&0o077 != 0 && !onWindows:
		return diagnose.Failed(fmt.Sprintf("chmod 600 %s; if somebody may have read it, make new secrets", shellWord(path)), "%s has mode %04o: who reads it can open every secret", path, info.Mode().Perm())
	}
	return diagnose.Passed("%s; keep a copy apart from the database's backup", path)
}

func scalerPath(given, dir string) string {
	if given != "" {
		return given
	}
	return filepath.Join(dir, scalerFile)
}

func judgeScalers(path, dir string) diagnose.Finding {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return diagnose.Skipped("%s is not there", path)
	}
	config, problems := scaler.LoadConfig(path, scaler.LoadOptions{Dir: dir, Kinds: backendKinds()})
	for _, warnings := range []bool{false, true} {
		for _, p := range problems {
			if p.Warning != warnings {
				continue
			}
			cure := p.Cure
			p.Cure = ""
			if warnings {
				return diagnose.Warned(cure, "%v", p)
			}
			return diagnose.Failed(cure, "%v%s", p, more(len(problems)-1))
		}
	}
	for _, e := range config.Scalers {
		if os.Geteuid() == 0 && e.Options.Bool("allowRoot") && e.Options.String("runAs") == "" {
			return diagnose.Warned("set runAs to a user for jobs", "%s: %s runs jobs as root", path, e.Name)
		}
	}
	return diagnose.Passed("%s is valid: %d scalers", path, len(config.Scalers))
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n)
}

func probeDatabase(ctx context.Context, h doctorcmd.Host) diagnose.Finding {
	p, err := store.Probe(ctx, store.Config{URL: h.DatabaseURL, Dir: h.DataDir})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return diagnose.Skipped("there is no database in %s; --database-url names one elsewhere", h.DataDir)
	case err != nil:
		return diagnose.Failed("check the address, the name and the password, and that the database takes connections", "%s cannot be asked: %v", p.Dialect, err)
	case p.Schema == 0:
		return diagnose.Warned("start a server once: it makes the tables", "%s answers and has no tables of kici", p.Dialect)
	case p.Schema > p.Wanted:
		return diagnose.Failed("use a kici at least as new as the one that ran last", "the schema is version %d, newer than this program's %d", p.Schema, p.Wanted)
	case p.Schema < p.Wanted:
		return diagnose.Warned("the next start of a server of this version brings it up to date", "the schema is version %d of %d", p.Schema, p.Wanted)
	}
	return judgeLease(p, time.Now())
}

// databaseClock is how far the clock of a database elsewhere may be from this machine's.
const databaseClock = 5 * time.Second

func judgeLease(p store.Probed, now time.Time) diagnose.Finding {
	text := fmt.Sprintf("%s, schema version %d", p.Dialect, p.Schema)
	if skew := time.UnixMilli(p.NowMs).Sub(now).Abs(); skew > databaseClock && p.Dialect == store.PostgreSQL {
		return diagnose.Warned("run an NTP service on both machines", "%s; its clock is %s away from this machine's", text, skew.Round(time.Second))
	}
	if p.Leader != "" && p.LeaseMs > p.NowMs {
		text += "; led by " + p.Leader
	}
	return diagnose.Passed("%s", text)
}
