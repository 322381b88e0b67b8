package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/cgroup"
	"github.com/kici-go/kici/internal/diagnose"
)

// killMethod tries whether this process may make cgroups that can be killed as a whole, as a job's agent does.
func killMethod() diagnose.Finding {
	const cure = "let systemd delegate a cgroup (Delegate=yes in the unit); without one, kici finds a job's processes by walking /proc"
	own, err := cgroup.Own()
	if errors.Is(err, cgroup.ErrNone) || missing(err) {
		return diagnose.Warned(cure, "this machine shows no cgroup v2 hierarchy; processes are ended one by one")
	}
	if err != nil {
		return diagnose.Warned(cure, "the cgroup of this process cannot be found: %v", err)
	}
	dir := filepath.Join(own, fmt.Sprintf("kici-doctor-%d", os.Getpid()))
	if err := cgroup.Make(dir); err != nil {
		return diagnose.Warned(cure, "no cgroup can be made in %s (by this user): %v", own, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := cgroup.Remove(ctx, dir); err != nil {
		return diagnose.Warned("remove it by hand", "a cgroup of this check is left: %v", err)
	}
	return diagnose.Passed("cgroups end the processes of a job at once")
}

func openFiles() diagnose.Finding {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return diagnose.Skipped("the limit cannot be read: %v", err)
	}
	return judgeOpenFiles(l.Cur, l.Max)
}
