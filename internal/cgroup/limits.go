package cgroup

import (
	"fmt"
	"strconv"
)

// Limits bound what the processes of a cgroup use together; 0 is no bound.
type Limits struct {
	CPUMilli int64 // thousandths of a CPU
	MemBytes int64 // swap is not allowed beside it
	Tasks    int64 // processes and threads
}

// minCPUMilli is the least share that is asked for: 1 % of a CPU (BM-7), also the least that the kernel takes.
const minCPUMilli = 10

// periodUs is the kernel's usual period of a CPU quota.
const periodUs = 100_000

// setting is a file of a cgroup and what it should hold.
type setting struct {
	controller, file, value string
	optional                bool // not every kernel has the file
}

// unified are the settings of a v2 cgroup. It is pure.
func (l Limits) unified() (out []setting) {
	if l.CPUMilli > 0 {
		out = append(out, setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", quotaUs(l.CPUMilli), periodUs), false})
	}
	if l.MemBytes > 0 {
		out = append(out, setting{"memory", "memory.max", number(l.MemBytes), false}, setting{"memory", "memory.swap.max", "0", true})
	}
	if l.Tasks > 0 {
		out = append(out, setting{"pids", "pids.max", number(l.Tasks), false})
	}
	return out
}

// legacy are the settings of v1 cgroups, in the order in which they must be written. It is pure.
func (l Limits) legacy() (out []setting) {
	if l.CPUMilli > 0 {
		out = append(out, setting{"cpu", "cpu.cfs_period_us", number(periodUs), false}, setting{"cpu", "cpu.cfs_quota_us", number(quotaUs(l.CPUMilli)), false})
	}
	if l.MemBytes > 0 { // memory and swap together are as much as memory: no swap
		out = append(out, setting{"memory", "memory.limit_in_bytes", number(l.MemBytes), false}, setting{"memory", "memory.memsw.limit_in_bytes", number(l.MemBytes), true})
	}
	if l.Tasks > 0 {
		out = append(out, setting{"pids", "pids.max", number(l.Tasks), false})
	}
	return out
}

func quotaUs(milli int64) int64 { return max(milli, minCPUMilli) * periodUs / 1000 }

func number(n int64) string { return strconv.FormatInt(n, 10) }

// Missing names what l bounds and held does not bound at all, or more loosely. A kernel rounds memory to pages.
func (l Limits) Missing(held Limits) (out []string) {
	for _, d := range []struct {
		name       string
		want, have int64
	}{{"cpu", l.CPUMilli, held.CPUMilli}, {"memory", l.MemBytes, held.MemBytes}, {"tasks", l.Tasks, held.Tasks}} {
		if d.want > 0 && (d.have == 0 || d.have > d.want) {
			out = append(out, d.name)
		}
	}
	return out
}

// Count is how often bounds were hit so far.
type Count struct {
	OOMKills uint64 // processes that were killed for want of memory
	Refusals uint64 // processes and threads that could not be made
}

// Blame says which bound was hit between two counts, as a step's end tells it; ” when none was. It is pure.
func (l Limits) Blame(before, after Count) string {
	switch {
	case after.OOMKills > before.OOMKills && l.MemBytes > 0:
		return "killed: out of memory (limit " + bytesText(l.MemBytes) + ")"
	case after.OOMKills > before.OOMKills:
		return "killed: out of memory (the machine's)"
	case after.Refusals > before.Refusals && l.Tasks > 0:
		return "task limit reached (" + number(l.Tasks) + " processes and threads)"
	case after.Refusals > before.Refusals:
		return "task limit reached"
	}
	return ""
}

// bytesText writes a size in the largest unit that divides it.
func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return number(n/u.size) + " " + u.name
		}
	}
	return number(n) + " bytes"
}
