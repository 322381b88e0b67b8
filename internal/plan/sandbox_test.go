package plan

import (
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// PIPE-16: what a job asks of its sandbox is let through by its organisation, or the job ends before an agent has it.
func TestSandboxDenied(t *testing.T) {
	allowed := Sandbox{Capabilities: []string{"CAP_NET_RAW", "CAP_SYS_PTRACE"}, HostNetwork: true}
	for _, c := range []struct {
		name    string
		allowed Sandbox
		want    *lock.Sandbox
		message string // part of it, '' for none
	}{
		{"asks for nothing", Sandbox{}, nil, ""},
		{"asks for what there is", Sandbox{}, &lock.Sandbox{}, ""},
		{"a capability", allowed, &lock.Sandbox{Capabilities: []string{"CAP_NET_RAW"}}, ""},
		{"a capability too many", allowed, &lock.Sandbox{Capabilities: []string{"CAP_NET_RAW", "CAP_SYS_ADMIN"}}, "does not allow CAP_SYS_ADMIN"},
		{"the network", allowed, &lock.Sandbox{Network: ci.NetworkHost}, ""},
		{"the network, not allowed", Sandbox{}, &lock.Sandbox{Network: ci.NetworkHost}, "sandboxAllowHostNetwork"},
	} {
		f := Facts{Workflow: &lock.Workflow{}, Job: &lock.Job{RunsOn: lock.Selector{Labels: []string{"linux"}}, Sandbox: c.want}, Status: "success", Sandbox: c.allowed}
		out := f.Evaluate()
		switch {
		case c.message == "" && out.Failure != nil:
			t.Errorf("%s: %+v", c.name, *out.Failure)
		case c.message != "" && (out.Failure == nil || out.Failure.Category != InitSandbox || !strings.Contains(out.Failure.Message, c.message)):
			t.Errorf("%s: %+v", c.name, out.Failure)
		}
	}
	skipped := Facts{Workflow: &lock.Workflow{}, Job: &lock.Job{If: "false", Sandbox: &lock.Sandbox{Network: ci.NetworkHost}}}
	if out := skipped.Evaluate(); out.Skip == "" {
		t.Errorf("a job that is skipped asks for nothing: %+v", out)
	}
}
