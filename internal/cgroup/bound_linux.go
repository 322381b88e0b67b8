package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Bound sets the limits of a v2 cgroup. An error names the first that cannot be set, and its controller.
func Bound(dir string, l Limits) error { return write(l.unified(), func(string) string { return dir }) }

// BoundLegacy sets the limits of v1 cgroups; dirs are by controller.
func BoundLegacy(dirs map[string]string, l Limits) error {
	return write(l.legacy(), func(controller string) string { return dirs[controller] })
}

func write(settings []setting, dir func(controller string) string) error {
	for _, s := range settings {
		d := dir(s.controller)
		if d == "" {
			continue // what is not there was said when it was looked for
		}
		err := put(filepath.Join(d, s.file), s.value)
		if errors.Is(err, fs.ErrNotExist) && s.optional {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s limit: %w", s.controller, err)
		}
	}
	return nil
}

// Loosen prepares an end of everything in a place: nothing is made there any more, and who dies need not wait for the memory that those
// before it still hold. Without it a cgroup full of processes at its memory limit dies for minutes. What cannot be written stays.
func (p Place) Loosen() {
	_ = put(p.file("pids", "pids.max", "pids.max"), "0")
	if dir := p.Legacy["memory"]; dir != "" {
		_ = put(filepath.Join(dir, "memory.memsw.limit_in_bytes"), "-1") // the greater of the two first
		_ = put(filepath.Join(dir, "memory.limit_in_bytes"), "-1")
	} else if p.Unified != "" {
		_ = put(filepath.Join(p.Unified, "memory.max"), "max")
	}
}

// put writes a file that must exist: the kernel answers an attempt to make one with a lack of permission.
func put(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Enter moves a process with its threads into a cgroup of either version.
func Enter(dir string, pid int) error {
	return put(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
}

// leaderLeaf is where Enable moves this process when it stands in the way.
const leaderLeaf = "kici-server"

// Home is this process's cgroup of v2, as it was before Enable moved it.
func Home() (string, error) {
	own, err := Own()
	if filepath.Base(own) == leaderLeaf {
		own = filepath.Dir(own)
	}
	return own, err
}

// Enable gives the children of a v2 cgroup its controllers of cpu, memory and pids, as far as it has them itself. A cgroup with
// processes, other than the root, cannot do that: when this process is the only one there, it moves into a child of its own first. It
// returns the controllers that the children have now.
func Enable(dir string) ([]string, error) {
	var has []string
	for c := range strings.FieldsSeq(read(filepath.Join(dir, "cgroup.controllers"))) {
		if slices.Contains(controllers, c) {
			has = append(has, c)
		}
	}
	if len(has) == 0 {
		return nil, fmt.Errorf("%s has no controller of cpu, memory or pids", dir)
	}
	err := enable(dir, has)
	if errors.Is(err, syscall.EBUSY) && stepAside(dir) {
		err = enable(dir, has)
	}
	if errors.Is(err, syscall.EBUSY) {
		err = fmt.Errorf("%s holds processes beside this one: start the server in a cgroup of its own (%w)", dir, err)
	}
	return has, err
}

func enable(dir string, names []string) error {
	return put(filepath.Join(dir, "cgroup.subtree_control"), "+"+strings.Join(names, " +"))
}

// stepAside moves this process into a child, when no other is beside it.
func stepAside(dir string) bool {
	self := os.Getpid()
	if strings.TrimSpace(read(filepath.Join(dir, "cgroup.procs"))) != strconv.Itoa(self) {
		return false
	}
	leaf := filepath.Join(dir, leaderLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return false
	}
	return Enter(leaf, self) == nil
}
