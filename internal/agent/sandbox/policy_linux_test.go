package sandbox

import (
	"slices"
	"testing"
)

func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		capabilities []string
		allowed      []string
		refused      []string
	}{
		{nil, []string{"read", "execve", "openat2", "socketpair"}, []string{"mount", "unshare", "setns", "bpf", "keyctl", "perf_event_open", "io_uring_setup", "userfaultfd", "init_module", "kexec_load", "reboot"}},
		{[]string{"CAP_SYS_ADMIN"}, []string{"mount", "unshare"}, []string{"init_module", "keyctl"}},
		{[]string{"CAP_NET_ADMIN"}, nil, []string{"mount", "unshare"}},
	} {
		p, err := policyFor(c.capabilities)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Assemble(); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, g := range p.Syscalls[:2] { // what is allowed, always and by its arguments
			names = append(names, g.Names...)
		}
		for _, n := range c.allowed {
			if !slices.Contains(names, n) {
				t.Errorf("with %v: %s is refused", c.capabilities, n)
			}
		}
		for _, n := range c.refused {
			if slices.Contains(names, n) {
				t.Errorf("with %v: %s is allowed", c.capabilities, n)
			}
		}
	}
}
