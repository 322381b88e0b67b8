package cgroup

import (
	"slices"
	"strings"
	"testing"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		limits          Limits
		unified, legacy string
	}{
		{Limits{}, "", ""},
		{Limits{CPUMilli: 1500}, "cpu.max=150000 100000", "cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000"},
		{Limits{CPUMilli: 1}, "cpu.max=1000 100000", "cpu.cfs_period_us=100000 cpu.cfs_quota_us=1000"},
		{Limits{MemBytes: 64 << 20}, "memory.max=67108864 memory.swap.max=0", "memory.limit_in_bytes=67108864 memory.memsw.limit_in_bytes=67108864"},
		{Limits{Tasks: 4096}, "pids.max=4096", "pids.max=4096"},
		{
			Limits{CPUMilli: 256_000, MemBytes: 1 << 40, Tasks: 7},
			"cpu.max=25600000 100000 memory.max=1099511627776 memory.swap.max=0 pids.max=7",
			"cpu.cfs_period_us=100000 cpu.cfs_quota_us=25600000 memory.limit_in_bytes=1099511627776 memory.memsw.limit_in_bytes=1099511627776 pids.max=7",
		},
	} {
		if got := join(c.limits.unified()); got != c.unified {
			t.Errorf("%+v: %s", c.limits, got)
		}
		if got := join(c.limits.legacy()); got != c.legacy {
			t.Errorf("%+v, v1: %s", c.limits, got)
		}
	}
}

func join(settings []setting) string {
	var out []string
	for _, s := range settings {
		out = append(out, s.file+"="+s.value)
	}
	return strings.Join(out, " ")
}

func TestMissing(t *testing.T) {
	want := Limits{CPUMilli: 1000, MemBytes: 1 << 20, Tasks: 10}
	for _, c := range []struct {
		held Limits
		miss []string
	}{
		{want, nil},
		{Limits{CPUMilli: 999, MemBytes: 1 << 19, Tasks: 1}, nil}, // bounded more tightly
		{Limits{}, []string{"cpu", "memory", "tasks"}},
		{Limits{CPUMilli: 2000, MemBytes: 1 << 20}, []string{"cpu", "tasks"}},
	} {
		if got := want.Missing(c.held); !slices.Equal(got, c.miss) {
			t.Errorf("%+v: %v", c.held, got)
		}
	}
	if got := (Limits{}).Missing(Limits{}); got != nil {
		t.Errorf("no limits: %v", got)
	}
}

func TestBlame(t *testing.T) {
	for _, c := range []struct {
		limits        Limits
		before, after Count
		want          string
	}{
		{Limits{MemBytes: 512 << 20}, Count{}, Count{}, ""},
		{Limits{MemBytes: 512 << 20}, Count{OOMKills: 3}, Count{OOMKills: 3}, ""},
		{Limits{MemBytes: 512 << 20}, Count{OOMKills: 3}, Count{OOMKills: 4}, "killed: out of memory (limit 512 MiB)"},
		{Limits{MemBytes: 3 << 30}, Count{}, Count{OOMKills: 1, Refusals: 9}, "killed: out of memory (limit 3 GiB)"},
		{Limits{MemBytes: 12345}, Count{}, Count{OOMKills: 1}, "killed: out of memory (limit 12345 bytes)"},
		{Limits{}, Count{}, Count{OOMKills: 1}, "killed: out of memory (the machine's)"},
		{Limits{Tasks: 4096}, Count{}, Count{Refusals: 1}, "task limit reached (4096 processes and threads)"},
		{Limits{}, Count{}, Count{Refusals: 1}, "task limit reached"},
	} {
		if got := c.limits.Blame(c.before, c.after); got != c.want {
			t.Errorf("%+v %+v %+v: %q", c.limits, c.before, c.after, got)
		}
	}
}
