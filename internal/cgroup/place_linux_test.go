package cgroup

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlaceOf(t *testing.T) {
	file := folder(t)
	const v1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
	for _, c := range []struct{ name, mounts, process, unified, legacy string }{
		{"hybrid", v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "1:cpu:/x\n0::/\n", "/sys/fs/cgroup/unified", "cpu=/sys/fs/cgroup/cpu/x"},
		{"unified", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n", "0::/user.slice/a b\n", "/sys/fs/cgroup/user.slice/a b", ""},
		{"namespace", "30 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/docker/1/x\n", "/sys/fs/cgroup/x", ""},
		{"elsewhere", "30 23 0:26 /other /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/docker/1\n", "", ""},
		{"legacy only", v1, "1:cpu:/x\n", "", "cpu=/sys/fs/cgroup/cpu/x"},
		{"two in one mount, one that bounds nothing", "1 2 0:3 / /m rw - cgroup cgroup rw,cpuacct,cpu\n1 2 0:3 / /b rw - cgroup cgroup rw,blkio\n", "4:cpuacct,cpu:/a:b\n5:blkio:/c\n", "", "cpu=/m/a:b"},
		{"a namespace entered from outside", "1 2 0:3 /.. /m rw - cgroup cgroup rw,pids\n", "8:pids:/../x\n", "", "pids=/m/x"},
		{"other file systems", "1 2 0:3 / /m rw - tmpfs tmpfs rw\nnonsense\n", "0::/x\n", "", ""},
	} {
		p, err := placeOf(file("mounts", c.mounts), file("process", c.process))
		var legacy []string
		for k, v := range maps.All(p.Legacy) {
			legacy = append(legacy, k+"="+v)
		}
		if err != nil || p.Unified != c.unified || strings.Join(legacy, " ") != c.legacy {
			t.Errorf("%s: %+v %v", c.name, p, err)
		}
	}
	if _, err := placeOf(file("mounts", v1), file("process", "nonsense\n")); err == nil {
		t.Error("a file that is none was read")
	}
}

// folder returns a function that writes files of one temporary folder.
func folder(t *testing.T) func(name, text string) string {
	dir := t.TempDir()
	return func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// What the kernel's files say, in both versions, read from files as it writes them.
func TestMeter(t *testing.T) {
	file := folder(t)
	dir := filepath.Dir(file("pids.events", "max 3\n"))
	for name, text := range map[string]string{
		"memory.events": "low 0\nhigh 0\nmax 17\noom 2\noom_kill 5\noom_group_kill 9\n", "memory.max": "max\n", "pids.max": "4096\n", "cpu.max": "150000 100000\n",
		"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", "memory.limit_in_bytes": "9223372036854771712\n", "cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n",
	} {
		file(name, text)
	}
	v2 := Place{Unified: dir}.Meter()
	if c, l := v2.Count(), v2.Limits(); c != (Count{5, 3}) || l != (Limits{1500, 0, 4096}) {
		t.Errorf("v2: %+v %+v", c, l)
	}
	v1 := Place{Unified: "/nowhere", Legacy: map[string]string{"memory": dir, "cpu": dir}}.Meter()
	if c, l := v1.Count(), v1.Limits(); c != (Count{7, 0}) || l != (Limits{}) {
		t.Errorf("v1: %+v %+v", c, l)
	}
	file("cpu.cfs_quota_us", "25000\n")
	file("memory.limit_in_bytes", "67108864\n")
	if l := v1.Limits(); l != (Limits{250, 64 << 20, 0}) {
		t.Errorf("v1 with limits: %+v", l)
	}
	if c, l := (Place{}).Meter().Count(), (Place{}).Meter().Limits(); c != (Count{}) || l != (Limits{}) {
		t.Errorf("nowhere: %+v %+v", c, l)
	}
}

func TestBoundAndEnable(t *testing.T) {
	file := folder(t)
	dir := filepath.Dir(file("cgroup.controllers", "cpuset cpu io memory pids\n"))
	for _, name := range []string{"cpu.max", "memory.max", "memory.swap.max", "pids.max", "cgroup.subtree_control"} {
		file(name, "")
	}
	if err := Bound(dir, Limits{CPUMilli: 500, MemBytes: 1 << 20, Tasks: 9}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"cpu.max": "50000 100000", "memory.max": "1048576", "memory.swap.max": "0", "pids.max": "9"} {
		if got := read(filepath.Join(dir, name)); got != want {
			t.Errorf("%s has %q", name, got)
		}
	}
	Place{Unified: dir}.Loosen()
	if tasks, memory := read(filepath.Join(dir, "pids.max")), read(filepath.Join(dir, "memory.max")); tasks[0] != '0' || memory[:3] != "max" {
		t.Errorf("loosened: %q %q", tasks, memory) // a file of a test keeps what was longer
	}
	has, err := Enable(dir)
	if err != nil || strings.Join(has, " ") != "cpu memory pids" || read(filepath.Join(dir, "cgroup.subtree_control")) != "+cpu +memory +pids" {
		t.Errorf("enabled %v: %v", has, err)
	}
	file("cgroup.controllers", "io\n")
	if _, err := Enable(dir); err == nil || !strings.Contains(err.Error(), "has no controller") {
		t.Errorf("no controller: %v", err)
	}
	if err := Bound(filepath.Join(dir, "none"), Limits{Tasks: 1}); err == nil || !strings.HasPrefix(err.Error(), "pids limit: ") {
		t.Errorf("no folder: %v", err)
	}
}
