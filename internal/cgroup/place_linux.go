package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNone says that this machine shows no cgroup v2 hierarchy to this process.
var ErrNone = errors.New("there is no cgroup v2 hierarchy")

// controllers are those that bound something here.
var controllers = []string{"cpu", "memory", "pids"}

// Place is where a process stands in the hierarchies that this process can see.
type Place struct {
	Unified string            // its directory of the v2 hierarchy, '' when there is none
	Legacy  map[string]string // its directory by v1 controller: those of cpu, memory and pids that are mounted as v1
}

// Own returns the directory of this process's cgroup, wherever the v2 hierarchy is mounted.
func Own() (string, error) {
	p, err := PlaceOf(os.Getpid())
	if err == nil && p.Unified == "" {
		err = ErrNone
	}
	return p.Unified, err
}

// PlaceOf finds where a process stands at this moment.
func PlaceOf(pid int) (Place, error) {
	return placeOf("/proc/self/mountinfo", "/proc/"+strconv.Itoa(pid)+"/cgroup")
}

func placeOf(mountinfo, process string) (Place, error) {
	paths, err := readPaths(process)
	if err != nil {
		return Place{}, err
	}
	f, err := os.Open(mountinfo)
	if err != nil {
		return Place{}, err
	}
	defer f.Close()
	p := Place{Legacy: map[string]string{}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m, ok := parseMount(lines.Text())
		if !ok {
			continue
		}
		if m.controllers == nil {
			if dir, ok := m.shows(paths, ""); ok && p.Unified == "" {
				p.Unified = dir
			}
			continue
		}
		for _, c := range m.controllers {
			if dir, ok := m.shows(paths, c); ok && p.Legacy[c] == "" {
				p.Legacy[c] = dir
			}
		}
	}
	return p, lines.Err()
}

// readPaths reads a process's path by controller; ” stands for the v2 hierarchy.
func readPaths(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) { // 4:memory:/path
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s has a line that is not understood: %.80q", file, line)
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			out[c] = parts[2]
		}
	}
	return out, nil
}

// mount is one mounted hierarchy.
type mount struct {
	root, at    string
	controllers []string // of a v1 hierarchy; nil is v2
}

// shows returns the directory of a process's cgroup in this mount; some mounts show another part of the hierarchy.
func (m mount) shows(paths map[string]string, controller string) (string, bool) {
	path, ok := paths[controller]
	if !ok {
		return "", false
	}
	rel, err := filepath.Rel(m.root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return filepath.Join(m.at, rel), true
}

// parseMount reads "36 35 98:0 /root /mount options … - fstype source options".
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields, kind := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(kind) < 3 {
		return mount{}, false
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	m := mount{root: unescape.Replace(fields[3]), at: unescape.Replace(fields[4])}
	switch kind[0] {
	case "cgroup2":
		return m, true
	case "cgroup":
		for o := range strings.SplitSeq(kind[2], ",") {
			if slices.Contains(controllers, o) {
				m.controllers = append(m.controllers, o)
			}
		}
		return m, m.controllers != nil
	}
	return mount{}, false
}

// file finds a file of a controller, which has another name in each version: in v1 where the controller is mounted there, else in v2.
func (p Place) file(controller, v1, v2 string) string {
	if dir := p.Legacy[controller]; dir != "" {
		return filepath.Join(dir, v1)
	}
	if p.Unified == "" {
		return ""
	}
	return filepath.Join(p.Unified, v2)
}
