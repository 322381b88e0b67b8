package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Meter reads what bounds a cgroup has and how often they were hit. Files that are not there count nothing.
type Meter struct {
	memory, memoryMax string
	tasks, tasksMax   string
	cpuMax, cpuPeriod string // cpuPeriod is '' where cpuMax holds both
}

// Meter is the meter of a place.
func (p Place) Meter() Meter {
	m := Meter{
		memory: p.file("memory", "memory.oom_control", "memory.events"), memoryMax: p.file("memory", "memory.limit_in_bytes", "memory.max"),
		tasks: p.file("pids", "pids.events", "pids.events"), tasksMax: p.file("pids", "pids.max", "pids.max"),
		cpuMax: p.file("cpu", "cpu.cfs_quota_us", "cpu.max"),
	}
	if dir := p.Legacy["cpu"]; dir != "" {
		m.cpuPeriod = filepath.Join(dir, "cpu.cfs_period_us")
	}
	return m
}

// Count reads the counters.
func (m Meter) Count() Count {
	return Count{OOMKills: keyed(m.memory, "oom_kill"), Refusals: keyed(m.tasks, "max")}
}

// unboundedBytes is from where on a v1 limit means none.
const unboundedBytes = 1 << 60

// Limits reads the bounds.
func (m Meter) Limits() Limits {
	l := Limits{MemBytes: first(m.memoryMax), Tasks: first(m.tasksMax)}
	if l.MemBytes >= unboundedBytes {
		l.MemBytes = 0
	}
	quota, period := first(m.cpuMax), first(m.cpuPeriod)
	if m.cpuPeriod == "" {
		_, rest, _ := strings.Cut(read(m.cpuMax), " ")
		period, _ = strconv.ParseInt(rest, 10, 64)
	}
	if quota > 0 && period > 0 {
		l.CPUMilli = quota * 1000 / period
	}
	return l
}

func read(file string) string {
	if file == "" {
		return ""
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// first reads the first number of a file; 0 for "max", -1 and nothing.
func first(file string) int64 {
	word, _, _ := strings.Cut(read(file), " ")
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// keyed reads the number behind a name in a file of lines "name number".
func keyed(file, name string) uint64 {
	for line := range strings.Lines(read(file)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}
